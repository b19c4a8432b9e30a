"""Samples of losses and of optimizer steps, with formulas written again, one element at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec


def _probabilities(x: Any) -> Any:
    e = np.exp(x - x.max())
    return e / e.sum()


def _cross_entropy(logits: Any, target: Any, *, axis: int, smoothing: float, ignore_index: int | None = None) -> Any:
    rows = np.moveaxis(logits, axis, -1)
    loss, top, below = np.zeros(target.shape), np.zeros(target.shape), np.zeros(target.shape)
    for place in np.ndindex(*target.shape):
        p, t = _probabilities(rows[place]), target[place]
        top[place], below[place] = max(rows[place]), math.fsum(np.exp(rows[place] - max(rows[place])))
        if t != ignore_index:
            wanted = np.full(p.size, smoothing / p.size)
            wanted[t] += 1 - smoothing
            loss[place] = -np.sum(wanted * np.log(p))
    return loss, top, below


def _cross_entropy_grad(
    logits: Any,
    target: Any,
    top: Any,
    below: Any,
    dy: Any,
    *,
    axis: int,
    smoothing: float,
    ignore_index: int | None = None,
) -> Any:
    rows = np.moveaxis(logits, axis, -1)
    slope = np.zeros(rows.shape)
    for place in np.ndindex(*target.shape):
        p, t = _probabilities(rows[place]), target[place]
        if t != ignore_index:
            wanted = np.full(p.size, smoothing / p.size)
            wanted[t] += 1 - smoothing
            slope[place] = (p - wanted) * dy[place]
    return np.moveaxis(slope, -1, axis)


def _nll(x: Any, target: Any, *, axis: int, ignore_index: int | None = None) -> Any:
    rows = np.moveaxis(x, axis, -1)
    loss = np.zeros(target.shape)
    for place in np.ndindex(*target.shape):
        if target[place] != ignore_index:
            loss[place] = -rows[place][target[place]]
    return loss


def _nll_grad(target: Any, dy: Any, *, axis: int, classes: int, ignore_index: int | None = None) -> Any:
    rows = np.zeros((*dy.shape, classes))
    for place in np.ndindex(*dy.shape):
        if target[place] != ignore_index:
            rows[place][target[place]] = -dy[place]
    return np.moveaxis(rows, -1, axis)


def _in_top_k(logits: Any, target: Any, *, axis: int, top: int) -> Any:
    rows = np.moveaxis(logits, axis, -1)
    right = np.zeros(target.shape, bool)
    for place in np.ndindex(*target.shape):
        order = sorted(range(rows.shape[-1]), key=lambda c: (-rows[place][c], c))
        right[place] = target[place] in order[:top]
    return right


def _both(x: Any, t: Any, *dys: Any, dy: float = 0.0, **attrs: Any) -> Any:
    loss, *statistics = _cross_entropy(x, t, **attrs)
    return loss, _cross_entropy_grad(x, t, *statistics, dys[0] if dys else np.full_like(loss, dy), **attrs)


def _class_samples() -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {
        name: []
        for name in (*(f"softmax_cross_entropy{of}" for of in ("", "_grad", "_both")), "nll", "nll_grad", "in_top_k")
    }
    cases: list[tuple[tuple[int, ...], int, float, int | None, str]] = [
        ((4, 5), 1, 0.0, None, "int32"),
        ((2, 3, 4), 1, 0.1, None, "int64"),
        ((3, 4, 2), 0, 0.0, 2, "int32"),
        ((2, 1, 3), 2, 1.0, 1, "uint8"),
        ((5,), 0, 0.3, None, "int32"),
        ((0, 3), 1, 0.0, None, "int32"),
        ((3, 1), 1, 0.0, None, "int32"),
    ]
    for shape, axis, smoothing, ignore, dtype in cases:
        rest = shape[:axis] + shape[axis + 1 :]
        target = Spec(rest, dtype, 0, shape[axis] - 1)
        optional = {} if ignore is None else {"ignore_index": ignore}
        attrs: dict[str, Any] = {"axis": axis, **optional}
        smooth = attrs | {"smoothing": smoothing}
        found["softmax_cross_entropy"].append(
            Sample([Spec(shape), target], smooth, reference=_cross_entropy, outputs=(0,))
        )
        rng = np.random.default_rng([7, *shape])
        x, t = rng.uniform(-2, 2, shape), rng.integers(0, shape[axis], rest).astype(dtype)
        statistics = _cross_entropy(x, t, **smooth)[1:]
        found["softmax_cross_entropy_grad"].append(
            Sample(
                [x, t, *statistics, rng.uniform(-1, 1, rest)], smooth, differentiable=(), reference=_cross_entropy_grad
            )
        )
        found["softmax_cross_entropy_both"] += [
            Sample([x, t, rng.uniform(-1, 1, rest)], smooth, differentiable=(), reference=_both),
            Sample([x, t], smooth | {"dy": 0.25}, differentiable=(), reference=_both),
        ]
        found["nll"].append(Sample([Spec(shape), target], attrs, reference=_nll))
        found["nll_grad"].append(Sample([target, Spec(rest)], attrs | {"classes": shape[axis]}, reference=_nll_grad))
        for top in {1, min(2, shape[axis]), shape[axis]}:
            found["in_top_k"].append(
                Sample([Spec(shape, distinct=True), target], {"axis": axis, "top": top}, (), reference=_in_top_k)
            )
    ties = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 2.0, 2.0], [-np.inf, 0.0, -np.inf]])
    for top in (1, 2):
        target = np.array([0, 1, 2, 2], np.int32)
        found["in_top_k"].append(Sample([ties, target], {"axis": 1, "top": top}, (), reference=_in_top_k))
    large = np.array([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]])
    smooth = {"axis": 1, "smoothing": 0.0}
    found["softmax_cross_entropy"].append(
        Sample(
            [large, np.array([0, 1], np.int32)],
            smooth,
            (),
            lambda *xs, **attrs: (np.array([0.0, math.log(3)]), None, None),
        )
    )
    return found


def _bce(x: Any, t: Any) -> Any:
    p = 1 / (1 + np.exp(-x))
    return -(t * np.log(p) + (1 - t) * np.log(1 - p))


def _step(rule: Any) -> Any:
    """The reference of an update: ``rule`` on each element, which is left alone where the gradient is not finite."""

    def reference(p: Any, g: Any, *rest: Any, parts: float = 1.0, **attrs: Any) -> Any:
        *slots, lr, step = rest
        g = g / parts
        new = [p.copy(), *(s.copy() for s in slots)]
        for place in np.ndindex(*p.shape):
            if math.isfinite(g[place]):
                found = rule(float(p[place]), float(g[place]), [float(s[place]) for s in slots], lr, step, **attrs)
                for array, value in zip(new, found):
                    array[place] = value
        return *new, np.array(not np.isfinite(g).all())

    return reference


def _sgd(p: float, g: float, slots: list[float], lr: float, step: int, **a: Any) -> Any:
    return (p - lr * (g + a["weight_decay"] * p),)


def _sgd_momentum(p: float, g: float, slots: list[float], lr: float, step: int, **a: Any) -> Any:
    g += a["weight_decay"] * p
    buf = a["momentum"] * slots[0] + g
    return p - lr * (g + a["momentum"] * buf if a["nesterov"] else buf), buf


def _adam(p: float, g: float, slots: list[float], lr: float, step: int, **a: Any) -> Any:
    if a["decoupled"]:
        p -= lr * a["weight_decay"] * p
    else:
        g += a["weight_decay"] * p
    m = a["beta1"] * slots[0] + (1 - a["beta1"]) * g
    v = a["beta2"] * slots[1] + (1 - a["beta2"]) * g**2
    mean, square = m / (1 - a["beta1"] ** (step + 1)), v / (1 - a["beta2"] ** (step + 1))
    return p - lr * mean / (math.sqrt(square) + a["eps"]), m, v


def _rmsprop(p: float, g: float, slots: list[float], lr: float, step: int, **a: Any) -> Any:
    g += a["weight_decay"] * p
    square = a["alpha"] * slots[0] + (1 - a["alpha"]) * g**2
    move = g / (math.sqrt(square) + a["eps"])
    if "momentum" in a:
        buf = a["momentum"] * slots[1] + move
        return p - lr * buf, square, buf
    return p - lr * move, square


def update_samples(rule: Any, slots: list[float], variants: list[dict[str, Any]]) -> list[Sample]:
    """``slots``: the least value of each slot tensor."""
    samples = []
    for attrs in variants:
        for shape, step in [((3, 2), 0), ((5,), 7), ((), 1), ((0, 2), 0)]:
            g: Any = Spec(shape, gap=0.1)
            if shape == (5,):
                g = np.array([0.5, np.nan, -1.0, np.inf, -np.inf])
            inputs = [Spec(shape), g, *(Spec(shape, low=low) for low in slots), np.array(0.1), np.array(step)]
            samples.append(Sample(inputs, attrs, differentiable=(), reference=_step(rule)))
    return samples


SAMPLES: dict[str, list[Sample]] = _class_samples()
SAMPLES["bce_with_logits"] = [
    Sample([Spec(x, gap=0.1), Spec(t, low=0.0, high=1.0)], reference=_bce)
    for x, t in [((3, 4), (3, 4)), ((2, 3), (3,)), ((), (2,)), ((0, 2), (0, 2))]
] + [Sample([np.array([1e3, -1e3]), np.array([1.0, 0.0])], {}, (), lambda x, t: np.zeros(2))]
SAMPLES["sgd_update"] = update_samples(_sgd, [], [{"weight_decay": 0.0}, {"weight_decay": 0.1, "parts": 3.0}])
SAMPLES["sgd_momentum_update"] = update_samples(
    _sgd_momentum,
    [-2],
    [{"weight_decay": w, "momentum": m, "nesterov": n} for w, m, n in [(0.0, 0.9, False), (0.1, 0.5, True)]],
)
SAMPLES["adam_update"] = update_samples(
    _adam,
    [-2, 0.1],
    [
        {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "decoupled": False},
        {"beta1": 0.5, "beta2": 0.9, "eps": 1e-3, "weight_decay": 0.1, "decoupled": False},
        {"beta1": 0.0, "beta2": 0.9, "eps": 1e-8, "weight_decay": 0.1, "decoupled": True, "parts": 3.0},
    ],
)
SAMPLES["rmsprop_update"] = update_samples(_rmsprop, [0.1], [{"alpha": 0.9, "eps": 1e-8, "weight_decay": 0.1}])
SAMPLES["rmsprop_momentum_update"] = update_samples(
    _rmsprop, [0.1, -2], [{"alpha": 0.9, "eps": 1e-3, "weight_decay": 0.0, "momentum": 0.9}]
)
SAMPLES["global_norm"] = [
    Sample(xs, {}, differentiable=(), reference=lambda *xs: math.sqrt(sum(float(v) ** 2 for x in xs for v in x.flat)))
    for xs in ([Spec((3, 2)), Spec((4,))], [Spec(())], [Spec((0, 3))], [np.array([np.inf, 1.0])])
]
SAMPLES["nonfinite"] = [
    Sample(xs, {}, differentiable=(), reference=lambda *xs: np.array([not all(map(math.isfinite, x.flat)) for x in xs]))
    for xs in (
        [Spec((3, 2)), Spec(()), np.array([1.0, -np.inf])],
        [np.array([[np.nan, 1.0]]), Spec((4,)), np.array(3e38)],
        [Spec((0, 3))],
    )
]
SAMPLES["clip_coefficient"] = [
    Sample(
        [np.array(norm)], {"max_norm": 1.5}, differentiable=(), reference=lambda x, max_norm, e=expected: np.array(e)
    )
    for norm, expected in [(0.0, 1.0), (0.5, 1.0), (3.0, 1.5 / (3 + 1e-6)), (np.inf, 0.0), (np.nan, 0.0)]
]
SAMPLES["clip_gradient"] = [
    Sample(
        [g],
        {"limit": 0.75},
        differentiable=(),
        reference=lambda g, limit: np.array([max(-limit, min(v, limit)) if np.isfinite(v) else v for v in g]),
    )
    for g in (Spec((9,)), np.array([0.75, -0.75, 0.0, np.inf, -np.inf, np.nan, 1e30]), Spec((0,)))
]
