"""Optimizers over twenty steps, against the formulas on plain floats; clipping; what is refused; initialisers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from op_laws.evaluation import run, values_of
from op_laws.optimizer_steps import OPTIMIZERS, STEPS, trained

from dslc.base.errors import CODES
from dslc.compiler.ir.function import Init
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import Builder, Mismatch
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops import registry
from dslc.compiler.ops.optimizer.clip_norm import check_limit, clip_by_global_norm, clip_by_value
from dslc.compiler.ops.optimizer.optim import Update
from dslc.compiler.ops.random.init import INITIALISERS, RESOLVED, fan_in_uniform, fans, initialiser, resolve


def test_a_gradient_whose_square_overflows_stops_its_element_alone() -> None:
    o = OPTIMIZERS["adam"]
    p, slots = np.zeros(2, np.float32), [np.zeros(2, np.float32)] * 2
    b = Builder()
    for step, gradient in enumerate(([2e19, 1.0], [1.0, 1.0], [1.0, 1.0])):
        arrays = [p, np.array(gradient, np.float32), *slots, np.array(0.1, np.float32), np.array(step)]
        values = values_of(arrays)
        outputs = o.update(b, o.defaults, values[0], values[1], values[2:-2], values[-2], values[-1])
        p, *slots, flag = run(outputs, dict(zip(values, arrays)))
        assert not flag and p[0] == 0 and p[1] == pytest.approx(-0.1 * (step + 1))
    assert np.isinf(slots[1][0]) and np.isfinite(slots[1][1])


def expected(rule: Callable[[Any], Any]) -> list[np.ndarray]:
    """The same by ``rule``: a generator that takes (p, g, rate) and gives the new p, in plain f64 arithmetic."""
    rng = np.random.default_rng(1)
    p = rng.uniform(-1, 1, (3, 4))
    stepper, history = rule(p), []
    next(stepper)
    for step in range(STEPS):
        g = 0.3 * p + rng.uniform(-1, 1, p.shape)
        p = stepper.send((p, g, 1 / (1 + step)))
        next(stepper)
        history.append(p)
    return history


def sgd(lr: float, momentum: float = 0, nesterov: bool = False, decay: float = 0) -> Callable[[Any], Iterator[Any]]:
    def rule(p: Any) -> Any:
        velocity = None
        while True:
            p, g, rate = yield
            g = g + decay * p
            velocity = g if velocity is None else momentum * velocity + g  # the first step takes the gradient as it is
            yield p - lr * rate * (g + momentum * velocity if nesterov else velocity)

    return rule


def adam(lr: float, betas: Any, eps: float, decay: float, decoupled: bool) -> Callable[[Any], Iterator[Any]]:
    def rule(p: Any) -> Any:
        sums = np.zeros((2, *p.shape))
        weights = np.zeros(2)
        while True:
            p, g, rate = yield
            if decoupled:
                p = p - lr * rate * decay * p
            else:
                g = g + decay * p
            # weighted means by their weights, not by powers of beta
            for i, (beta, x) in enumerate(zip(betas, (g, g * g))):
                sums[i], weights[i] = beta * sums[i] + (1 - beta) * x, beta * weights[i] + (1 - beta)
            mean, square = sums[0] / weights[0], sums[1] / weights[1]
            yield p - lr * rate * mean / (np.sqrt(square) + eps)

    return rule


def rmsprop(lr: float, alpha: float, eps: float, momentum: float, decay: float) -> Callable[[Any], Iterator[Any]]:
    def rule(p: Any) -> Any:
        square, buf = np.zeros_like(p), np.zeros_like(p)
        while True:
            p, g, rate = yield
            g = g + decay * p
            square = alpha * square + (1 - alpha) * g**2
            buf = momentum * buf + g / (np.sqrt(square) + eps)
            yield p - lr * rate * buf

    return rule


def centered(lr: float, alpha: float, eps: float, momentum: float) -> Callable[[Any], Iterator[Any]]:
    def rule(p: Any) -> Any:
        square, mean, buf = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
        while True:
            p, g, rate = yield
            square, mean = alpha * square + (1 - alpha) * g**2, alpha * mean + (1 - alpha) * g
            buf = momentum * buf + g / (np.sqrt(square - mean**2) + eps)
            yield p - lr * rate * buf

    return rule


def lamb(lr: float, betas: Any, eps: float, decay: float) -> Callable[[Any], Iterator[Any]]:
    def rule(p: Any) -> Any:
        sums, weights = np.zeros((2, *p.shape)), np.zeros(2)
        while True:
            p, g, rate = yield
            for i, (beta, x) in enumerate(zip(betas, (g, g * g))):
                sums[i], weights[i] = beta * sums[i] + (1 - beta) * x, beta * weights[i] + (1 - beta)
            r = sums[0] / weights[0] / (np.sqrt(sums[1] / weights[1]) + eps) + decay * p
            yield p - lr * rate * np.linalg.norm(p) / np.linalg.norm(r) * r

    return rule


def lars(lr: float, momentum: float, coefficient: float, decay: float) -> Callable[[Any], Iterator[Any]]:
    def rule(p: Any) -> Any:
        buf = np.zeros_like(p)
        while True:
            p, g, rate = yield
            of_param, of_grad = np.linalg.norm(p), np.linalg.norm(g)
            trust = coefficient * of_param / (of_grad + decay * of_param + 1e-8)
            buf = momentum * buf + trust * (g + decay * p)
            yield p - lr * rate * buf

    return rule


RUNS: list[tuple[str, dict[str, Any], Any]] = [
    ("sgd", {"lr": 0.1}, sgd(0.1)),
    ("sgd", {"lr": 0.1, "weight_decay": 0.05}, sgd(0.1, decay=0.05)),
    ("sgd", {"lr": 0.1, "momentum": 0.9}, sgd(0.1, 0.9)),
    ("sgd", {"lr": 0.1, "momentum": 0.8, "nesterov": True, "weight_decay": 0.1}, sgd(0.1, 0.8, True, 0.1)),
    ("adam", {}, adam(1e-3, (0.9, 0.999), 1e-8, 0, False)),
    (
        "adam",
        {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1},
        adam(0.1, (0.5, 0.9), 1e-3, 0.1, False),
    ),
    ("adamw", {"lr": 0.1}, adam(0.1, (0.9, 0.999), 1e-8, 0.01, True)),
    ("rmsprop", {}, rmsprop(0.01, 0.99, 1e-8, 0, 0)),
    (
        "rmsprop",
        {"lr": 0.1, "alpha": 0.9, "momentum": 0.5, "eps": 1e-4, "weight_decay": 0.1},
        rmsprop(0.1, 0.9, 1e-4, 0.5, 0.1),
    ),
    ("rmsprop", {"alpha": 0.9, "centered": True, "eps": 1e-2}, centered(0.01, 0.9, 1e-2, 0)),
    ("rmsprop", {"alpha": 0.5, "centered": True, "momentum": 0.9, "eps": 0.1}, centered(0.01, 0.5, 0.1, 0.9)),
    ("lamb", {}, lamb(1e-3, (0.9, 0.999), 1e-6, 0)),
    ("lamb", {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1}, lamb(0.1, (0.5, 0.9), 1e-3, 0.1)),
    ("lars", {"lr": 1.0}, lars(1.0, 0.9, 0.001, 0)),
    (
        "lars",
        {"lr": 1.0, "momentum": 0, "trust_coefficient": 0.1, "weight_decay": 0.1},
        lars(1.0, 0, 0.1, 0.1),
    ),
]


@pytest.mark.parametrize(("name", "named", "rule"), RUNS, ids=[f"{i}-{r[0]}" for i, r in enumerate(RUNS)])
def test_twenty_steps(name: str, named: dict[str, Any], rule: Any) -> None:
    for got, want in zip(trained(name, named), expected(rule), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    for got, want in zip(trained(name, named, np.float32), expected(rule), strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_what_is_not_finite_is_left_alone(name: str) -> None:
    o, args = OPTIMIZERS[name].rule(
        OPTIMIZERS[name].defaults | {"lr": 0.1, "weight_decay": 0.1}, TensorType(DType.F64, (4,)), False
    )
    p, g = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.5, np.nan, np.inf, 0.75])
    slots = [np.full(4, 0.125) for _ in o.slots(args)]
    arrays = [p, g, *slots, np.array(0.1), np.array(3)]
    values = values_of(arrays)
    outputs = o.update(Builder(), args, *values[:2], values[2:-2], *values[-2:])
    *new, flag = run(outputs, dict(zip(values, arrays)))
    assert flag and flag.shape == ()
    for got, old in zip(new, [p, *slots]):
        np.testing.assert_array_equal(got[[1, 2]], old[[1, 2]])
        assert (got[[0, 3]] != old[[0, 3]]).all()


@pytest.mark.parametrize("name", sorted(name for name, op in registry.ops().items() if isinstance(op, Update)))
def test_updates_may_overwrite_parameter_and_slots(name: str) -> None:
    op: Any = registry.ops()[name]
    assert list(op.inplace) == [(0, 0)] + [(2 + i, 1 + i) for i in range(op.slots)]


BAD = [
    ("sgd", {"lr": -0.1}), ("sgd", {"lr": math.inf}), ("sgd", {"lr": math.nan}), ("sgd", {"lr": 0.1, "momentum": 1.0}),
    ("sgd", {"lr": 0.1, "momentum": -0.1}), ("sgd", {"lr": 0.1, "nesterov": True}),
    ("sgd", {"lr": 0.1, "weight_decay": -1e-4}), ("adam", {"betas": (0.9, 1.0)}), ("adam", {"betas": (0.9,)}),
    ("adam", {"betas": 0.9}), ("adam", {"eps": -1e-8}), ("adamw", {"lr": "big"}), ("rmsprop", {"alpha": 1.0}),
    ("rmsprop", {"momentum": 2}), ("rmsprop", {"lr": True}), ("lamb", {"betas": (1.0, 0.9)}), ("lamb", {"eps": -1}),
    ("lars", {"lr": 1.0, "momentum": 1.0}), ("lars", {"lr": 1.0, "trust_coefficient": -1}),
    ("lars", {"lr": 1.0, "eps": math.nan}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "named"), BAD)
def test_arguments_out_of_range(name: str, named: dict[str, Any]) -> None:
    with pytest.raises(Mismatch) as caught:
        OPTIMIZERS[name].slots(OPTIMIZERS[name].defaults | named)
    assert caught.value.code == "E0209" and caught.value.help


@pytest.mark.parametrize("scale", [0.01, 100.0, np.nan, np.inf])
def test_clipping_by_the_common_norm(scale: float) -> None:
    grads = [np.arange(6.0).reshape(2, 3), np.array(-2.0), np.zeros((0, 4))]
    grads[0][0, 0] = scale
    values = values_of(grads)
    got = run(clip_by_global_norm(Builder(), values, 3.0), dict(zip(values, grads)))
    norm = math.sqrt(sum(float(np.sum(g * g)) for g in grads))
    if math.isfinite(scale):
        for y, g in zip(got, grads):
            np.testing.assert_allclose(y, g * min(1, 3 / (norm + 1e-6)), rtol=1e-12)
    else:
        assert np.isnan(got[0][0, 0]) and not got[0].flat[1:].any() and got[1] == 0
    # below the bound nothing changes, not even a bit
    kept = run(clip_by_global_norm(Builder(), values, 1e6), dict(zip(values, grads)))
    if math.isfinite(scale):
        assert all(np.array_equal(y, g) for y, g in zip(kept, grads))


def test_clipping_by_value_keeps_what_is_not_finite() -> None:
    g = np.array([-3.0, -0.5, 0.0, 0.5, 7.0, np.inf, -np.inf, np.nan])
    values = values_of([g])
    [got] = run(clip_by_value(Builder(), values, 0.5), {values[0]: g})
    np.testing.assert_array_equal(got, [-0.5, -0.5, 0, 0.5, 0.5, np.inf, -np.inf, np.nan])
    for bound in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(Mismatch, match="clip_value"):
            check_limit("clip_value", bound)


def test_clipping_keeps_each_dtype() -> None:
    values = [Input("g", Kind.DATA, TensorType(d, (3,))).value for d in (DType.F16, DType.F32)]
    assert [v.type for v in clip_by_global_norm(Builder(), values, 1)] == [v.type for v in values]
    for bound in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(Mismatch, match="clip_norm"):
            check_limit("clip_norm", bound)
    for bound in (1e-30, 0.5, 1.0, 1e30):
        check_limit("clip_norm", bound)


def test_initialisers_as_written() -> None:
    assert initialiser("uniform", (0.05,)) == Init("uniform", (-0.05, 0.05))
    assert initialiser("uniform", (-1, 3)) == Init("uniform", (-1, 3))
    assert initialiser("uniform", (), {"low": 0, "high": 1}) == Init("uniform", (0, 1))
    assert initialiser("normal", (0.02,)) == Init("normal", (0, 0.02))
    assert initialiser("normal", (1,), {"std": 2}) == Init("normal", (1, 2))
    assert initialiser("zeros") == initialiser("constant", (0,)) == Init("constant", (0,))
    assert initialiser("ones") == Init("constant", (1,))
    assert initialiser("trunc_normal", (0.5,)) == Init("trunc_normal", (0, 0.5, -1, 1))
    assert initialiser("trunc_normal", (1, 0.5)) == Init("trunc_normal", (1, 0.5, 0, 2))
    assert initialiser("trunc_normal", (1, 0.5, -2, 3)) == Init("trunc_normal", (1, 0.5, -2, 3))
    assert initialiser("kaiming_normal") == Init("kaiming_normal", (0, 0))


def test_resolved_over_the_fans() -> None:
    shape = (8, 6, 3, 5)
    assert fans(shape) == (90, 120)
    assert resolve(initialiser("xavier_uniform"), shape).args[1] == pytest.approx(math.sqrt(6 / 210))
    assert resolve(initialiser("xavier_normal", (2,)), shape) == Init("normal", (0, 2 * math.sqrt(2 / 210)))
    assert resolve(initialiser("kaiming_uniform", (1,)), shape).args[1] == pytest.approx(math.sqrt(3 / 90))
    assert resolve(initialiser("kaiming_normal"), shape).args == pytest.approx((0, math.sqrt(2 / 90)))
    assert resolve(initialiser("kaiming_normal", (), {"mode": 1}), shape).args == pytest.approx((0, math.sqrt(2 / 120)))
    assert resolve(initialiser("lecun_normal"), shape).args == pytest.approx((0, math.sqrt(1 / 90)))
    assert resolve(initialiser("lecun_uniform"), shape).args[1] == pytest.approx(math.sqrt(3 / 90))
    assert resolve(Init("normal", (0, 0.5)), (3,)) == Init("normal", (0, 0.5))
    assert resolve(initialiser("kaiming_normal"), (4, 0)) == Init("constant", (0,))
    assert fan_in_uniform(25).args == (-0.2, 0.2)


@pytest.mark.parametrize(
    ("name", "args", "named", "code"),
    [
        ("he", (), {}, "E0101"), ("uniform", (), {}, "E0201"), ("uniform", (1, 2, 3), {}, "E0201"),
        ("uniform", (1,), {"a": 1}, "E0201"), ("uniform", (2, 1), {}, "E0209"), ("normal", (-1,), {}, "E0209"),
        ("normal", (math.nan,), {}, "E0209"), ("zeros", (1,), {}, "E0201"), ("constant", (math.inf,), {}, "E0209"),
        ("trunc_normal", (0, 1, 2, 1), {}, "E0209"), ("trunc_normal", (0, 1, 5, 9), {}, "E0209"),
        ("trunc_normal", (0, 1, 5), {}, "E0201"), ("trunc_normal", (0, 0, 1, 2), {}, "E0209"),
        ("xavier_normal", (), {"std": 1}, "E0201"), ("xavier_normal", (-1,), {}, "E0209"),
        ("orthogonal", (-1,), {}, "E0209"), ("orthogonal", (1, 2), {}, "E0201"),
        ("kaiming_normal", (0, 0.5), {}, "E0209"),
    ],
)  # fmt: skip
def test_initialisers_refused(name: str, args: Any, named: Any, code: str) -> None:
    with pytest.raises(Mismatch) as caught:
        initialiser(name, args, named)
    assert caught.value.code == code and code in CODES and caught.value.help


def test_every_initialiser_has_a_page_and_resolves() -> None:
    for name, known in INITIALISERS.items():
        assert known.page.startswith(name)
        made = initialiser(name, tuple(1.0 if n == "mode" else 0.5 + i for i, n in enumerate(known.forms[0])))
        assert resolve(made, (3, 4)).kind in RESOLVED
    with pytest.raises(Mismatch):
        resolve(initialiser("xavier_normal"), (3,))
    with pytest.raises(Mismatch):
        resolve(initialiser("orthogonal"), (3,))
    assert resolve(initialiser("orthogonal", (2,)), (3, 4)) == Init("orthogonal", (2,))
