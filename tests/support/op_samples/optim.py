"""Samples of optimizer steps that look at the whole tensor, or keep a mean; sums written with math.fsum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
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
