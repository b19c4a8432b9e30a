"""Samples of optimizer steps: of those that look at the whole tensor, with sums by math.fsum, and of the rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from op_samples.loss import update_samples
from op_samples.sample import Sample, Spec


def _norm(values: Sequence[float]) -> float:
    return math.sqrt(math.fsum(v * v for v in values))


def _lists(p: Any, g: Any, slots: Sequence[Any]) -> tuple[list[bool], list[float], list[float], list[list[float]]]:
    """Where the gradient is finite; parameter, gradient (0 elsewhere) and slots as lists."""
    flat = [float(v) for v in g.reshape(-1)]
    finite = [math.isfinite(v) for v in flat]
    grads = [v if ok else 0.0 for v, ok in zip(flat, finite)]
    return finite, [float(v) for v in p.reshape(-1)], grads, [[float(v) for v in s.reshape(-1)] for s in slots]


def _kept(finite: list[bool], old: Any, new: list[float]) -> np.ndarray:
    return np.array([n if ok else o for ok, o, n in zip(finite, old.reshape(-1), new)]).reshape(old.shape)


def lamb(p: Any, g: Any, m: Any, v: Any, lr: Any, step: Any, **a: Any) -> Any:
    finite, ps, gs, (ms, vs) = _lists(p, g, (m, v))
    t = int(step) + 1
    ms = [a["beta1"] * x + (1 - a["beta1"]) * y for x, y in zip(ms, gs)]
    vs = [a["beta2"] * x + (1 - a["beta2"]) * y * y for x, y in zip(vs, gs)]
    r = [
        (x / (1 - a["beta1"] ** t)) / (math.sqrt(y / (1 - a["beta2"] ** t)) + a["eps"]) + a["weight_decay"] * z
        for x, y, z in zip(ms, vs, ps)
    ]
    trust = _norm(ps) / _norm(r) if _norm(ps) > 0 and _norm(r) > 0 else 1.0
    new = [x - float(lr) * trust * y for x, y in zip(ps, r)]
    return _kept(finite, p, new), _kept(finite, m, ms), _kept(finite, v, vs), np.array(not all(finite))


def lars(p: Any, g: Any, buf: Any, lr: Any, step: Any, **a: Any) -> Any:
    finite, ps, gs, (bs,) = _lists(p, g, (buf,))
    trust = 1.0
    if _norm(ps) > 0 and _norm(gs) > 0:
        trust = a["trust_coefficient"] * _norm(ps) / (_norm(gs) + a["weight_decay"] * _norm(ps) + a["eps"])
    bs = [a["momentum"] * x + trust * (y + a["weight_decay"] * z) for x, y, z in zip(bs, gs, ps)]
    new = [x - float(lr) * y for x, y in zip(ps, bs)]
    return _kept(finite, p, new), _kept(finite, buf, bs), np.array(not all(finite))


def centered(p: Any, g: Any, *rest: Any, **a: Any) -> Any:
    *slots, lr, _ = rest
    finite, ps, gs, found = _lists(p, g, slots)
    gs = [y + a["weight_decay"] * x for x, y in zip(ps, gs)]
    squares = [a["alpha"] * x + (1 - a["alpha"]) * y * y for x, y in zip(found[0], gs)]
    means = [a["alpha"] * x + (1 - a["alpha"]) * y for x, y in zip(found[1], gs)]
    moves = [y / (math.sqrt(max(s - m * m, 0)) + a["eps"]) for y, s, m in zip(gs, squares, means)]
    new_slots = [squares, means]
    if "momentum" in a:
        moves = [a["momentum"] * x + y for x, y in zip(found[2], moves)]
        new_slots.append(moves)
    new = [x - float(lr) * y for x, y in zip(ps, moves)]
    return _kept(finite, p, new), *(_kept(finite, s, n) for s, n in zip(slots, new_slots)), np.array(not all(finite))


BROKEN = np.array([0.5, np.nan, -1.0, np.inf, -np.inf])


def steps(reference: Any, slots: list[Spec], variants: list[dict[str, Any]]) -> list[Sample]:
    """Each with gradients of several shapes, some not finite, and a parameter of zeros."""
    made = []
    for attrs in variants:
        for shape, step in [((3, 2), 0), ((5,), 7), ((), 1), ((0, 2), 0)]:
            g: Any = BROKEN if shape == (5,) else Spec(shape, gap=0.1)
            own = [Spec(shape, low=s.low, high=s.high) for s in slots]
            inputs = [Spec(shape), g, *own, np.array(0.1), np.array(step)]
            made.append(Sample(inputs, attrs, differentiable=(), reference=reference))
        zeros = [np.zeros(4), Spec((4,)), *(Spec((4,), low=s.low, high=s.high) for s in slots)]
        made.append(Sample([*zeros, np.array(0.1), np.array(2)], attrs, differentiable=(), reference=reference))
    return made


MULTI = [(3, 2), (5,), (), (0, 2), (1,), (9000,)]


def several(*xs: Any, step: str, each: Sequence[tuple[str, Any]]) -> Any:
    """Momentum, parameter by parameter."""
    a, (lr, _), new, flags = dict(each), xs[-2:], [], []
    for p, buf, g in zip(xs[0:12:2], xs[1:12:2], xs[12:18], strict=True):
        finite, ps, gs, (bs,) = _lists(p, g, (buf,))
        gs = [y + a["weight_decay"] * x for x, y in zip(ps, gs)]
        bs = [a["momentum"] * x + y for x, y in zip(bs, gs)]
        moves = [y + a["momentum"] * x if a["nesterov"] else x for x, y in zip(bs, gs)]
        new += [_kept(finite, p, [x - float(lr) * m for x, m in zip(ps, moves)]), _kept(finite, buf, bs)]
        flags.append(not all(finite))
    return *new, np.array(flags)


def _decayed(p: float, g: float, lr: float, a: dict[str, Any]) -> tuple[float, float]:
    decay = a["weight_decay"]
    return (p - lr * decay * p, g) if a.get("decoupled") else (p, g + decay * p)


def _moments(g: float, slots: Sequence[float], a: dict[str, Any]) -> tuple[float, float]:
    one, two = a["beta1"], a["beta2"]
    return one * slots[0] + (1 - one) * g, two * slots[1] + (1 - two) * g * g


def _lion(p: float, g: float, slots: Sequence[float], lr: float, step: int, **a: Any) -> Any:
    m = slots[0]
    way = float(np.sign(a["beta1"] * m + (1 - a["beta1"]) * g))
    return p - lr * a["weight_decay"] * p - lr * way, a["beta2"] * m + (1 - a["beta2"]) * g


def _adagrad(p: float, g: float, slots: Sequence[float], lr: float, step: int, **a: Any) -> Any:
    p, g = _decayed(p, g, lr, a)
    total = slots[0] + g * g
    return p - lr / (1 + step * a["lr_decay"]) * g / (math.sqrt(total) + a["eps"]), total


def _adadelta(p: float, g: float, slots: Sequence[float], lr: float, step: int, **a: Any) -> Any:
    p, g = _decayed(p, g, lr, a)
    rho, eps = a["rho"], a["eps"]
    square = rho * slots[0] + (1 - rho) * g * g
    move = g * math.sqrt((slots[1] + eps) / (square + eps))
    return p - lr * move, square, rho * slots[1] + (1 - rho) * move * move


def _adamax(p: float, g: float, slots: Sequence[float], lr: float, step: int, **a: Any) -> Any:
    p, g = _decayed(p, g, lr, a)
    m, most = _moments(g, slots, a)[0], max(a["beta2"] * slots[1], abs(g) + a["eps"])
    return p - lr / (1 - a["beta1"] ** (step + 1)) * m / most, m, most


def _nadam(p: float, g: float, slots: Sequence[float], lr: float, step: int, **a: Any) -> Any:
    p, g = _decayed(p, g, lr, a)
    m, v = _moments(g, slots, a)
    *so_far, here, there = (a["beta1"] * (1 - 0.96 ** (i * a["momentum_decay"]) / 2) for i in range(1, int(step) + 3))
    product = math.prod([*so_far, here])
    move = (1 - here) / (1 - product) * g + there / (1 - product * there) * m
    return p - lr * move / (math.sqrt(v / (1 - a["beta2"] ** (step + 1))) + a["eps"]), m, v


def _radam(p: float, g: float, slots: Sequence[float], lr: float, step: int, **a: Any) -> Any:
    p, g = _decayed(p, g, lr, a)
    m, v = _moments(g, slots, a)
    t, beta = step + 1, a["beta2"]
    most = 2 / (1 - beta) - 1
    length = most - 2 * t * beta**t / (1 - beta**t)
    move = m / (1 - a["beta1"] ** t)
    if length > 5:
        factor = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
        move *= math.sqrt(factor * (1 - beta**t)) / (math.sqrt(v) + a["eps"])
    return p - lr * move, m, v


def _rprop(p: float, g: float, slots: Sequence[float], lr: float, step: int, **a: Any) -> Any:
    p, g = _decayed(p, g, lr, a)
    before, size = slots[0], slots[1] or lr
    if g * before < 0:
        return p, 0.0, max(size * a["shrink"], a["least"])
    size = min(size * a["grow"], a["most"]) if g * before > 0 else min(max(size, a["least"]), a["most"])
    return p - float(np.sign(g)) * size, g, size


_ADAM = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1}
_RPROP = {"shrink": 0.5, "grow": 1.2, "least": 0.1, "most": 2.0}
ANY, POSITIVE, SMALL = Spec(()), Spec((), low=0.5), Spec((), low=-0.5, high=0.5)

SAMPLES: dict[str, list[Sample]] = {
    "lamb_update": steps(
        lamb,
        [ANY, POSITIVE],
        [{"beta1": b, "beta2": 0.99, "eps": 1e-6, "weight_decay": w} for b, w in ((0.9, 0.0), (0.0, 0.1))],
    ),
    "lars_update": steps(
        lars,
        [ANY],
        [
            {"momentum": m, "trust_coefficient": 0.01, "eps": 1e-8, "weight_decay": w}
            for m, w in ((0.9, 0.0), (0.0, 0.1))
        ],
    ),
    "rmsprop_centered_update": steps(
        centered,
        [POSITIVE, SMALL],
        [{"alpha": 0.9, "eps": 1e-8, "weight_decay": 0.1}, {"alpha": 0.5, "eps": 1e-2, "weight_decay": 0.0}],
    ),
    "rmsprop_centered_momentum_update": steps(
        centered, [POSITIVE, SMALL, ANY], [{"alpha": 0.9, "eps": 1e-3, "weight_decay": 0.0, "momentum": 0.9}]
    ),
    "lion_update": update_samples(
        _lion, [-2], [{"beta1": 0.9, "beta2": b, "weight_decay": b - 0.5} for b in (0.5, 0.99)]
    ),
    "adagrad_update": update_samples(
        _adagrad, [0.1], [{"lr_decay": d, "eps": 1e-8, "weight_decay": d} for d in (0.0, 0.1)]
    ),
    "adadelta_update": update_samples(
        _adadelta, [0.1, 0.1], [{"rho": 0.9, "eps": 1e-6, "weight_decay": d} for d in (0.0, 0.1)]
    ),
    "adamax_update": update_samples(_adamax, [-2, 0.1], [_ADAM, _ADAM | {"beta1": 0.0, "weight_decay": 0.0}]),
    "nadam_update": update_samples(
        _nadam,
        [-2, 0.1],
        [
            _ADAM | {"decoupled": d, "momentum_decay": m, "beta1": b}
            for d, m, b in ((False, 0.004, 0.9), (True, 0.0, 0.9), (False, 0.3, 0.0))
        ],
    ),
    "radam_update": update_samples(
        _radam, [-2, 0.1], [_ADAM | {"decoupled": d, "beta2": b} for d, b in ((False, 0.999), (True, 0.5), (True, 0.9))]
    ),
    "rprop_update": update_samples(_rprop, [-2, 0.1], [_RPROP | {"weight_decay": d} for d in (0.0, 0.1)]),
    "multi_update": [
        Sample(
            [
                *(Spec(shape) for shape in MULTI for _ in range(2)),
                *(BROKEN if shape == (5,) else Spec(shape, gap=0.1) for shape in MULTI),
                np.array(0.1),
                np.array(3),
            ],
            {"step": "sgd_momentum_update", "each": (("momentum", 0.9), ("nesterov", n), ("weight_decay", 0.1))},
            differentiable=(),
            reference=several,
        )
        for n in (False, True)
    ]
    + [
        Sample(
            [Spec((3,)), Spec((1,)), Spec((3,)), np.array([np.inf]), np.array(0.1), np.array(0)],
            {"step": "sgd_update", "each": (("weight_decay", 0.0),)},
            differentiable=(),
            reference=lambda p, q, g, h, lr, t, step, each: (p - lr * g, q, np.array([False, True])),
        )
    ],
}
