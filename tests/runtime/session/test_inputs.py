"""Inputs that do not fit, by golden message; inputs that do, in all their forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from artifacts.line_model import BATCH, FEATURES

from dslc.base.errors import InputError
from dslc.runtime.session.inputs.check import in_range
from dslc.runtime.session.session import Session

Open = Callable[..., Session]
Golden = Callable[[str, str], None]
X = np.ones((BATCH, FEATURES), np.float32)
TARGET = np.zeros(BATCH, np.int32)


class Foreign:
    """An object with ``__dlpack__`` that is no numpy array."""

    def __init__(self, array: Any, device: Any = (1, 0), error: Exception | None = None) -> None:
        self.array, self.device, self.error = array, device, error

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        if self.error is not None:
            raise self.error
        return self.array.__dlpack__(**options)


def labels(value: int, row: int) -> np.ndarray:
    target = TARGET.copy()
    target[row] = value
    return target


WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "unknown_name": ("predict", {"x": X, "X1": X}),
    "close_name": ("train_step", {"x": X, "targt": TARGET}),
    "missing": ("train_step", {"x": X}),
    "dtype": ("train_step", {"x": X.astype(np.float64), "target": TARGET}),
    "integer": ("train_step", {"x": X.astype(np.int32), "target": TARGET}),
    "byte_order": ("train_step", {"x": X.astype(">f4"), "target": TARGET}),
    "object": ("predict", {"x": X.astype(object)}),
    "text": ("predict", {"x": np.array(["a"])}),
    "masked": ("predict", {"x": np.ma.masked_array(X, X > 0)}),
    "list": ("train_step", {"x": X.tolist(), "target": TARGET}),
    "float": ("predict", {"x": 1.5}),
    "large": ("predict", {"x": [[1.0] * FEATURES, [1e300] * FEATURES]}),
    "inexact": ("predict", {"x": np.full((BATCH, FEATURES), 2**24 + 1)}),
    "truth": ("predict", {"x": X > 0}),
    "lengths": ("predict", {"x": [[1.0], [1.0, 2.0]]}),
    "words": ("predict", {"x": [["a"] * FEATURES]}),
    "none": ("predict", {"x": None}),
    "rank": ("predict", {"x": X[0]}),
    "scalar": ("predict", {"x": np.float32(1)}),
    "columns": ("predict", {"x": np.ones((BATCH, FEATURES + 1), np.float32)}),
    "too_many_rows": ("train_step", {"x": np.ones((51, FEATURES), np.float32), "target": np.zeros(51, np.int32)}),
    "no_rows": ("train_step", {"x": X[:0], "target": TARGET[:0]}),
    "rows_differ": ("evaluate", {"x": X, "target": TARGET[:2]}),
    "batch_not_built": ("train_step", {"x": X[:3], "target": TARGET[:3]}),
    "label_high": ("train_step", {"x": X, "target": labels(10, 2)}),
    "label_negative": ("evaluate", {"x": X, "target": labels(-1, 3)}),
    "argument": ("train_step", {"x": X, "target": TARGET, "beta": "high"}),
    "argument_unknown": ("train_step", {"x": X, "target": TARGET, "gamma": 1.0}),
    "rate": ("train_step", {"x": X, "target": TARGET, "lr": float("nan")}),
    "rate_negative": ("train_step", {"x": X, "target": TARGET, "lr": -0.5}),
    "rate_too_large": ("train_step", {"x": X, "target": TARGET, "lr": 1e300}),
    "step": ("predict", {"x": X, "step": -1}),
    "row": ("predict", {"x": X, "row": 1.0}),
    "other_device": ("predict", {"x": Foreign(X, device=(2, 0))}),
    "no_device": ("predict", {"x": Foreign(X, device=None)}),
    "no_export": ("predict", {"x": Foreign(X, error=BufferError("it requires a gradient"))}),
    "dlpack_dtype": ("train_step", {"x": Foreign(X.astype(np.float64)), "target": TARGET}),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_wrong_input_says_what_was_expected_and_what_came(open_line: Open, golden: Golden, name: str) -> None:
    call, inputs = WRONG[name]
    session = open_line()
    before = session.state_tensors()
    with pytest.raises(InputError) as caught:
        getattr(session, call)(**inputs)
    assert caught.value.code == "R105" and caught.value.help
    golden(f"inputs/{name}.txt", caught.value.render() + "\n")
    assert session.step == 0
    assert all(np.array_equal(v, before[k]) for k, v in session.state_tensors().items())


@pytest.mark.parametrize("call", ["predict", "train_step", "evaluate"])
def test_inputs_are_given_by_name(open_line: Open, call: str) -> None:
    with open_line() as session, pytest.raises(InputError, match="by name") as caught:
        getattr(session, call)(X)
    assert caught.value.help and caught.value.help.startswith(f"write {call}(x=...")


OTHERS: dict[str, Any] = {
    "f64": X.astype(np.float64) / 3,
    "byte order": (X / 3).astype(">f8"),
    "f16": X.astype(np.float16),
    "i64": (X * 10).astype(np.int64),
    "lists": (X / 3).tolist(),
    "tuples of ints": tuple(map(tuple, (X * 10).astype(int).tolist())),
    "DLPack": Foreign(X.astype(np.float64) / 3),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_predict_takes_other_numbers(open_line: Open, kind: str) -> None:
    """Twice each: the second call of the same kind must not take the arguments as those that need no conversion."""
    given = OTHERS[kind]
    array = given.array if isinstance(given, Foreign) else np.asarray(given)
    with open_line() as session:
        expected = session.predict(x=array.astype(np.float32)).y
        for _ in range(2):
            assert np.array_equal(session.predict(x=given).y, expected)
        assert session.predict(x=np.zeros((0, FEATURES))).y.shape == expected[:0].shape


class Sub(np.ndarray):
    """A subclass without a meaning of its own."""


def strided() -> np.ndarray:
    return np.repeat(X, 2, axis=0)[::2]


def read_only() -> np.ndarray:
    x = X.copy()
    x.flags.writeable = False
    return x


def unaligned() -> np.ndarray:
    raw = np.zeros(X.nbytes + 1, np.uint8)
    raw[1:] = X.reshape(-1).view(np.uint8)
    x = raw[1:].view(np.float32).reshape(X.shape)
    assert not x.flags.aligned
    return x


@pytest.mark.parametrize(
    "x",
    [strided(), read_only(), unaligned(), np.asfortranarray(X), X[::-1], Foreign(X), np.broadcast_to(X[:1], X.shape),
     X.view(Sub)],
    ids=["strided", "read-only", "unaligned", "column-major", "reversed", "dlpack", "broadcast", "subclass"],
)  # fmt: skip
def test_forms_that_are_taken(open_line: Open, x: Any) -> None:
    session = open_line()
    copy = np.array(X)
    assert np.array_equal(session.predict(x=x).y, session.predict(x=copy).y)
    session.train_step(x=x, target=TARGET)
    if isinstance(x, np.ndarray):
        assert np.array_equal(x, copy)  # inputs are never written


def test_nan_is_data(open_line: Open) -> None:
    assert np.isnan(open_line().predict(x=X * np.float32("nan")).y).all()


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __str__


PROTOCOLS = ("__dlpack_device__", "__dlpack__", "__array__", "__array_interface__", "__cuda_array_interface__")
RAISED = (
    KeyError("k"), OSError(5, "io"), ZeroDivisionError(), ImportError("x"), SystemError(), EOFError(), StopIteration(),
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "half"), AssertionError(), RecursionError(), _Unspeakable(),
)  # fmt: skip


def hostile(error: Exception, *, when_called: bool) -> Any:
    """An object whose every way to be read as an array raises: when it is looked up, or when it is called."""

    def raises(*args: Any, **named: Any) -> Any:
        raise error

    def called(self: Any) -> Any:
        return raises

    lookup = property(called) if when_called else property(raises)
    return type("Hostile", (), {**dict.fromkeys(PROTOCOLS, lookup), "__repr__": raises})()


@pytest.mark.parametrize("when_called", [True, False])
@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_whatever_an_input_raises_is_a_refusal(open_line: Open, error: Exception, when_called: bool) -> None:
    session = open_line()
    for value in (
        hostile(error, when_called=when_called),
        Foreign(X, device=hostile(error, when_called=when_called)),
        Foreign(X, error=error),
    ):
        for call in (
            lambda v: session.predict(x=v),
            lambda v: session.train_step(x=v, target=TARGET),
            lambda v: session.train_step(x=X, target=TARGET, lr=v),
        ):
            with pytest.raises(InputError) as caught:
                call(value)
            assert caught.value.code == "R105" and caught.value.help


def test_no_values_are_in_every_range() -> None:
    for shape in ((0,), (0, 3), (2, 0)):
        assert in_range(np.empty(shape, np.int32), (0, 10))
    assert in_range(np.array([0, 9]), (0, 10)) and in_range(np.array([99]), None)
    assert not in_range(np.array([0, 10]), (0, 10)) and not in_range(np.array([-1, 0]), (0, 10))


def test_a_call_without_inputs_is_refused(open_line: Open) -> None:
    session = open_line()
    for call in (session.predict, session.evaluate, session.train_step):
        with pytest.raises(InputError) as caught:
            call()
        assert caught.value.code == "R105"
