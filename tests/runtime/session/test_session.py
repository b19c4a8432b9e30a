"""predict, train_step and evaluate through a hand-made plan, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifacts.line_model import BATCH, FEATURES, MEANINGS, OUTPUTS, write_line

from dslc.base.errors import DslcError, InputError, OutOfMemory, WeightsMissing
from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ops.registry import meanings
from dslc.compiler.options import Options
from dslc.runtime.session import host_memory as memory
from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session

Open = Callable[..., Session]


def data(rows: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, FEATURES)).astype(np.float32)


def expected(session: Session, x: np.ndarray) -> np.ndarray:
    w, b = session.weights["w"], session.weights["b"]
    return np.stack([(w * row).sum(1, dtype=np.float32) + b for row in x]) * np.float32(2)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 11, 50, 51, 203])
def test_predict_gives_every_row_once_in_order(open_line: Open, rows: int) -> None:
    session = open_line()
    x = data(rows)
    y, number = session.predict(x=x, row=100)
    assert y.dtype == np.float32 and y.shape == (rows, OUTPUTS)
    assert np.array_equal(y, expected(session, x))
    assert number.tolist() == list(range(100, 100 + rows))


def test_no_rows_give_no_rows(open_line: Open) -> None:
    y, number = open_line().predict(x=data(0))
    assert y.shape == (0, OUTPUTS) and y.dtype == np.float32 and number.shape == (0,)


def test_missing_rows_repeat_the_last(line: Path) -> None:
    seen: list[np.ndarray] = []

    def spy(inputs: list[np.ndarray], attrs: object) -> object:
        seen.append(inputs[0].copy())
        return MEANINGS["linear"](inputs, attrs)  # type: ignore[arg-type]

    with load(line, weights="init", meanings=MEANINGS | {"linear": spy}) as session:
        session.predict(x=data(4, seed=1))
        session.predict(x=data(2))
    assert np.array_equal(seen[1], data(2)[[0, 1, 1, 1]])


def test_results_are_named_and_owned(open_line: Open) -> None:
    session = open_line()
    first = session.predict(x=data(4))
    kept = first.y.copy()
    session.predict(x=data(4, seed=9))
    assert type(first).__name__ == "LineResults" and first._fields == ("y", "number")
    assert np.array_equal(first.y, kept)
    first.y[...] = 0  # ours to write
    assert not np.shares_memory(first.y, session.predict(x=data(4)).y)


def test_mixed_rows_are_cut_and_never_padded(tmp_path: Path) -> None:
    with load(write_line(tmp_path, mix=True), weights="init", meanings=MEANINGS) as session:
        x = data(6)
        y = session.predict(x=x).y
        plain = expected(session, x) / np.float32(2)
        whole = plain[:4] - plain[:4].mean(0, dtype=np.float32)
        assert np.array_equal(y[:4], whole * np.float32(2))
        assert np.array_equal(y[4:], np.zeros((2, OUTPUTS), np.float32))  # batches of one row: minus its own mean
        with pytest.raises(InputError) as caught:
            session.predict(x=data(51))
        assert "B must be in 1..50" in (caught.value.help or "")


def test_sizes_that_cannot_make_up_the_rows(tmp_path: Path) -> None:
    with load(write_line(tmp_path, mix=True, sizes=(4,)), weights="init", meanings=MEANINGS) as session:
        with pytest.raises(InputError, match="6 rows do not divide into") as caught:
            session.predict(x=data(6))
        assert "give B = a multiple of 4" in (caught.value.help or "")
        with pytest.raises(InputError, match="6 rows do not divide into"):
            session.evaluate(x=data(6), target=np.zeros(6, np.int32))


def test_train_step_changes_the_state_in_place(open_line: Open) -> None:
    session = open_line()
    w, b, m = (session.state_tensors()[n] for n in ("w", "b", "w.momentum"))
    x, target = data(BATCH), np.arange(BATCH, dtype=np.int32)
    result = session.train_step(x=x, target=target)
    loss, new_w, new_b, new_m, _ = MEANINGS["descend"]([x, target, w, b, m, np.float32(0.125), np.float32(0.5)], {})
    state = session.state_tensors()
    assert result.loss == float(loss) and result.step == 0 and result.nonfinite is None
    assert result.metrics == {"first_row": 0.0}
    for name, value in (("w", new_w), ("b", new_b), ("w.momentum", new_m)):
        assert np.array_equal(state[name], value), name
    assert session.step == 1
    assert session.train_step(x=x, target=target).metrics == {"first_row": float(BATCH)}
    assert session.train_step(x=x, target=target, row=77).metrics == {"first_row": 77.0}


def test_learning_rate_and_float_arguments(open_line: Open) -> None:
    session = open_line()
    x, target = data(BATCH), np.zeros(BATCH, np.int32)
    before = session.state_tensors()
    session.train_step(x=x, target=target, lr=0.0)
    assert np.array_equal(session.weights["w"], before["w"])
    session.restore(before, 0)
    session.train_step(x=x, target=target, beta=0.0, lr=1.0)
    d_w = session.state_tensors()["w.momentum"]
    assert np.array_equal(session.weights["w"], before["w"] - d_w)
    for bad in (float("nan"), float("inf"), "1", True, 1e39, None):
        with pytest.raises(InputError):
            session.train_step(x=x, target=target, beta=bad)
    assert session.step == 1


def test_a_gradient_that_is_not_finite_is_data(open_line: Open) -> None:
    session = open_line()
    x = data(BATCH)
    x[0, 0] = np.nan
    before = session.weights["b"]
    result = session.train_step(x=x, target=np.zeros(BATCH, np.int32))
    assert np.isnan(result.loss) and result.nonfinite == "w"
    assert np.array_equal(session.weights["b"], before)
    assert session.step == 1


@pytest.mark.parametrize("rows", [1, 4, 7, 120])
def test_evaluate_combines_pieces(open_line: Open, rows: int) -> None:
    session = open_line()
    x, target = data(rows), np.arange(rows, dtype=np.int32) % 10
    result = session.evaluate(x=x, target=target)
    errors = np.square(expected(session, x) / 2 - target[:, None]).sum(1, dtype=np.float64)
    assert result.rows == rows
    assert result.loss == pytest.approx(errors.sum() / rows, rel=1e-6)
    # row numbers run through all pieces
    assert result.metrics == {"high": rows - 1.0, "low": 0.0}


def test_evaluate_nothing(open_line: Open) -> None:
    with pytest.raises(InputError, match="no rows"):
        open_line().evaluate(x=data(0), target=np.zeros(0, np.int32))


def test_seeds(open_line: Open) -> None:
    same = [open_line(seed=5).weights["w"] for _ in range(2)]
    assert np.array_equal(*same)
    assert not np.array_equal(same[0], open_line(seed=6).weights["w"])
    assert open_line(seed=2**64 - 1).weights["w"].shape == (OUTPUTS, FEATURES)
    session = open_line(seed=6)
    session.initialise(5)
    assert np.array_equal(session.weights["w"], same[0])


def test_a_model_without_inputs(tmp_path: Path) -> None:
    """Nothing is given, so nothing lies on a device."""
    (tmp_path / "m.nn").write_text("nn 1\nmodel M() -> [3] {\n  return full([3], 2.0)\n}\n")
    artifact = pipeline.build(check_file(tmp_path / "m.nn"), Options(provider="reference")).artifact
    (tmp_path / "m.dslc").write_bytes(artifact)
    with load(tmp_path / "m.dslc", meanings=meanings()) as session:
        assert session.predict().tolist() == [2.0, 2.0, 2.0]


def test_without_weights(line: Path) -> None:
    with load(line, meanings=MEANINGS) as session:
        for call in (
            lambda: session.predict(x=data(1)),
            lambda: session.train_step(x=data(BATCH), target=np.zeros(BATCH, np.int32)),
            lambda: session.evaluate(x=data(1), target=np.zeros(1, np.int32)),
            lambda: session.weights["w"],
            lambda: session.weights.save(line.parent / "w.safetensors"),
            session.state_tensors,
        ):
            with pytest.raises(WeightsMissing) as caught:
                call()
            assert caught.value.code == "R304" and "dslc train" in (caught.value.help or "")
        with pytest.raises(WeightsMissing, match="`b` and 1 more have no value"):
            session.predict(x=data(1))
        session.weights["w"] = np.ones((OUTPUTS, FEATURES), np.float32)
        with pytest.raises(WeightsMissing, match="`b` has no value"):
            session.predict(x=data(1))
        session.weights["b"] = np.ones(OUTPUTS, np.float32)
        assert np.array_equal(session.predict(x=data(3)).y, expected(session, data(3)))


def test_restore_continues_bitwise(open_line: Open) -> None:
    x, target = data(BATCH), np.zeros(BATCH, np.int32)
    straight, broken, other = open_line(), open_line(), open_line(seed=8)
    for _ in range(3):
        straight.train_step(x=x, target=target)
    broken.train_step(x=x, target=target)
    other.restore(broken.state_tensors(), broken.step)
    for _ in range(2):
        other.train_step(x=x, target=target)
    assert other.step == straight.step == 3
    for name, value in straight.state_tensors().items():
        assert np.array_equal(value, other.state_tensors()[name])


def test_restore_takes_all_or_nothing(open_line: Open) -> None:
    session = open_line()
    before = session.state_tensors()
    for bad in (
        {k: v for k, v in before.items() if k != "b"},
        before | {"more": before["b"]},
        before | {"b": before["b"].astype(np.float64)},
        before | {"b": before["b"][:1]},
    ):
        with pytest.raises(InputError):
            session.restore({k: v + 1 for k, v in bad.items()}, 0)
    with pytest.raises(InputError):
        session.restore(before, -1)
    assert all(np.array_equal(v, before[k]) for k, v in session.state_tensors().items())


def test_a_step_that_breaks_off_is_never_computed_with(line: Path) -> None:
    def broken(inputs: object, attrs: object) -> list[np.ndarray]:
        raise KeyboardInterrupt

    broke = dict(MEANINGS)
    with load(line, weights="init", meanings=broke) as whole:
        saved = whole.state_tensors()
    with load(line, weights="init", meanings=MEANINGS | {"descend": broken}) as session:
        with pytest.raises(KeyboardInterrupt):
            session.train_step(x=data(BATCH), target=np.zeros(BATCH, np.int32))
        with pytest.raises(DslcError) as caught:
            session.predict(x=data(1))
        assert caught.value.code == "R310"
        session.restore(saved, 0)
        assert np.array_equal(session.predict(x=data(3)).y, expected(session, data(3)))
        # a wrong input is seen before the state is touched
        with pytest.raises(InputError):
            session.train_step(x=data(BATCH + 1), target=np.zeros(BATCH + 1, np.int32))
        session.predict(x=data(1))


def test_an_error_before_the_first_update_leaves_the_session_usable(line: Path) -> None:
    def refuses(inputs: object, attrs: object) -> list[np.ndarray]:
        raise InputError("R105", "no such row")

    with load(line, weights="init", meanings=MEANINGS | {"row_number": refuses}) as session:
        before = session.predict(x=data(3)).y
        with pytest.raises(InputError, match="no such row"):
            session.train_step(x=data(BATCH), target=np.zeros(BATCH, np.int32))
        assert session.step == 0 and np.array_equal(session.predict(x=data(3)).y, before)


@pytest.mark.timeout(30)
def test_batches_that_call_the_session_itself_are_refused(open_line: Open) -> None:
    """The thread would wait for itself."""
    session, target = open_line(), np.zeros(BATCH, np.int32)
    for call in (lambda: session.predict(x=data(1)), lambda: session.train_step(x=data(BATCH), target=target),
                 lambda: session.weights["w"], session.state_tensors):  # fmt: skip

        def batches(call: Callable[[], object] = call) -> Any:
            yield {"x": data(BATCH), "target": target}
            call()
            yield {"x": data(BATCH), "target": target}

        with pytest.raises(InputError, match="during training steps") as caught:
            session.train_steps(batches())
        assert caught.value.code == "R105"
        session.predict(x=data(1))


def test_closed(open_line: Open, tmp_path: Path) -> None:
    session, file, target = open_line(), tmp_path / "w.safetensors", np.zeros(BATCH, np.int32)
    with session:
        session.predict(x=data(1))
        session.weights.save(file)
        session.save_checkpoint(tmp_path / "c")
        weight = session.weights["w"]
    session.close()
    calls: dict[str, Callable[[], object]] = {
        "predict": lambda: session.predict(x=data(1)),
        "train_step": lambda: session.train_step(x=data(BATCH), target=target),
        "weights[]": lambda: session.weights["w"],
        "weights[] =": lambda: session.weights.__setitem__("w", weight),
        "weights.load": lambda: session.weights.load(file),
        "weights.save": lambda: session.weights.save(tmp_path / "other"),
        "save_checkpoint": lambda: session.save_checkpoint(tmp_path / "other"),
        "load_checkpoint": lambda: session.load_checkpoint(tmp_path / "c"),
        "state_tensors": session.state_tensors,
        "with": session.__enter__,
    }
    for name, call in calls.items():
        with pytest.raises(DslcError) as caught:
            call()
        assert caught.value.code == "R309", name
    assert not (tmp_path / "other").exists()
    assert "closed" in repr(session)


def test_memory_is_compared_before_it_is_taken(line: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    with pytest.raises(OutOfMemory) as caught:
        load(line, weights="init", meanings=MEANINGS)
    text = caught.value.render()
    assert "1000 bytes are free" in text and "`x` of predict@B=4" in text
    assert len(text.split("largest buffers are")[1].split("\n")[0].split(", ")) == 5
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 16)
    load(line, weights="init", meanings=MEANINGS).close()
    with pytest.raises(OutOfMemory):
        load(line, weights="init", meanings=MEANINGS, contexts=256).close()


@pytest.mark.parametrize(
    "options", [{"contexts": 0}, {"contexts": 257}, {"contexts": True}, {"seed": -1}, {"seed": 1 << 64},
                {"seed": 1.0}, {"verify": "no"}, {"device": "tpu"}, {"device": None}]
)  # fmt: skip
def test_options_out_of_range(line: Path, options: dict[str, object]) -> None:
    with pytest.raises(InputError):
        load(line, meanings=MEANINGS, **options)  # type: ignore[arg-type]


def test_what_this_machine_lacks(line: Path) -> None:
    for options, code in (
        ({"device": "gpu", "meanings": MEANINGS}, "R202"),
        ({}, "R203"),
        ({"meanings": {k: v for k, v in MEANINGS.items() if k != "descend"}}, "R203"),
    ):
        with pytest.raises(DslcError) as caught:
            load(line, weights="init", **options)  # type: ignore[arg-type]
        assert caught.value.code == code
    load(line, weights="init", meanings=lambda: MEANINGS).close()


def test_a_step_without_anything_found_is_one_step(open_line: Open) -> None:
    session, other = open_line(seed=4), open_line(seed=4)
    target = np.zeros(BATCH, np.int32)
    for number in range(1, 4):
        assert session.find_nonfinite(x=data(BATCH), target=target) is None
        other.train_step(x=data(BATCH), target=target)
        assert session.step == other.step == number
