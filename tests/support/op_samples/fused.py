"""Samples of sums over pointwise steps, and of other ops with such steps before and after them."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec

_BODY = (("sub", (0, 1), ()), ("mul", (2, 2), ()))


def _moments(over: tuple[int, ...]) -> Any:
    def reference(x: Any, shift: Any, **attrs: Any) -> Any:
        return np.sum(x - shift, axis=over), np.sum(np.square(x - shift), axis=over)

    return reference


def _sample(shape: tuple[int, ...], shift: tuple[int, ...], over: tuple[int, ...]) -> Sample:
    attrs = {"body": _BODY, "summed": (2, 3), "over": over}
    return Sample([Spec(shape), Spec(shift)], attrs, differentiable=(), reference=_moments(over))


def _keeping(shape: tuple[int, ...], over: tuple[int, ...]) -> Sample:
    """What is summed is written, too."""

    def reference(x: Any, y: Any, **attrs: Any) -> Any:
        return np.sum(x * y, axis=over), np.sum(np.square(x * y), axis=over), x * y

    attrs = {"body": (("mul", (0, 1), ()), ("mul", (2, 2), ())), "summed": (2, 3), "over": over, "kept": (2,)}
    return Sample([Spec(shape), Spec(shape)], attrs, differentiable=(), reference=reference)


def _asking(shape: tuple[int, ...], over: tuple[int, ...]) -> Sample:
    """One of the inputs is bits."""

    def reference(x: Any, y: Any, bits: Any, **attrs: Any) -> Any:
        chosen = np.where(np.unpackbits(bits, bitorder="little").reshape(shape), x, y)
        return np.sum(chosen, axis=over), chosen

    body = (("unpack_bits", (2,), (("shape", shape),)), ("where", (3, 0, 1), ()))
    bits = Spec((int(np.prod(shape)) // 8,), "uint8", 0, 255)
    attrs = {"body": body, "summed": (4,), "over": over, "kept": (4,)}
    return Sample([Spec(shape), Spec((shape[-1],)), bits], attrs, differentiable=(), reference=reference)


def _of_many(shape: tuple[int, ...], bits: bool) -> Sample:
    """More vectors than a thread has registers for at full width."""

    def reference(x: Any, y: Any, a: Any, b: Any, c: Any, d: Any, *packed: Any, **attrs: Any) -> Any:
        scaled = (x - a) * b + c
        if bits:
            scaled = np.where(np.unpackbits(packed[0], bitorder="little").reshape(shape), scaled, y)
        return np.sum(scaled, axis=0), np.sum(scaled * y * d, axis=0)

    count = 6 + bits
    body: list[Any] = [("sub", (0, 2), ()), ("mul", (count, 3), ()), ("add", (count + 1, 4), ())]
    if bits:
        body += [("unpack_bits", (6,), (("shape", shape),)), ("where", (count + 3, count + 2, 1), ())]
    last = count + len(body) - 1
    body += [("mul", (last, 1), ()), ("mul", (last + 1, 5), ())]
    packed = [Spec((int(np.prod(shape)) // 8,), "uint8", 0, 255)] if bits else []
    specs = [Spec(shape), Spec(shape), *[Spec((shape[-1],))] * 4, *packed]
    attrs = {"body": tuple(body), "summed": (last, last + 2), "over": (0,)}
    return Sample(specs, attrs, differentiable=(), reference=reference)


def _finished(shape: tuple[int, ...], over: tuple[int, ...]) -> Sample:
    """A mean and values computed from it, a scalar and a vector."""
    kept = tuple(size for axis, size in enumerate(shape) if axis not in over)

    def reference(x: Any, rate: Any, old: Any, **attrs: Any) -> Any:
        total = np.sum(x * x, axis=over)
        return old + total * rate, total, np.maximum(total * rate, old)

    finish = (("mul", (0, 1), ()), ("add", (2, 3), ()), ("maximum", (3, 2), ()))
    attrs = {"body": (("mul", (0, 0), ()),), "summed": (1,), "over": over}
    attrs |= {"late": 2, "finish": finish, "results": (4, 0, 5)}
    return Sample([Spec(shape), Spec(()), Spec(kept)], attrs, differentiable=(), reference=reference)


def _stacked(shape: tuple[int, ...], axis: int, perm: tuple[int, ...] = ()) -> Sample:
    """Stacked along an axis: the larger of y and the first half of x times a, the second half of x, and y."""

    def reference(x: Any, a: Any, y: Any, **attrs: Any) -> Any:
        part = x[..., : shape[-1]]
        whole = np.stack([np.maximum(part * a, y), x[..., shape[-1] :], y], axis=axis)
        return whole.transpose(perm) if perm else whole

    first = tuple(0 for _ in shape)
    steps, ends = tuple(1 for _ in shape), (*shape[:-1], 2 * shape[-1])
    halves = [(("starts", first), ("steps", steps), ("stops", shape))]
    halves += [(("starts", (*first[:-1], shape[-1])), ("steps", steps), ("stops", ends))]
    body = (("slice", (0,), halves[0]), ("slice", (0,), halves[1]), ("mul", (3, 1), ()), ("maximum", (5, 2), ()))
    attrs: dict[str, Any] = {"body": body, "results": (6, 4, 2), "axis": axis}
    attrs |= {"perm": perm} if perm else {}
    return Sample([Spec(ends), Spec((shape[-1],)), Spec(shape)], attrs, differentiable=(), reference=reference)


def _softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def _scores(shape: tuple[int, ...], bias: tuple[int, ...], axis: int) -> Sample:
    """softmax(x * s + bias) * x"""

    def reference(x: Any, s: Any, bias: Any, **attrs: Any) -> Any:
        return _softmax(x * s + bias, axis) * x

    body = (("mul", (0, 1), ()), ("add", (3, 2), ()), ("softmax", (4,), (("axis", axis),)), ("mul", (5, 0), ()))
    return Sample([Spec(shape), Spec(()), Spec(bias)], {"body": body}, differentiable=(), reference=reference)


def _mean_square(shape: tuple[int, ...], shift: tuple[int, ...], over: tuple[int, ...], keep: bool) -> Sample:
    """mean((x - shift)^2) + late"""
    rest = tuple(1 if a in over else n for a, n in enumerate(shape) if keep or a not in over)

    def reference(x: Any, shift: Any, late: Any, **attrs: Any) -> Any:
        return np.mean(np.square(x - shift), axis=over, keepdims=keep) + late

    attrs = (("keep", keep), ("over", over))
    body = (("sub", (0, 1), ()), ("mul", (3, 3), ()), ("mean", (4,), attrs), ("add", (5, 2), ()))
    return Sample([Spec(shape), Spec(shift), Spec(rest)], {"body": body}, differentiable=(), reference=reference)


def _turned(shape: tuple[int, ...], perm: tuple[int, ...], row: tuple[int, ...], late: tuple[int, ...]) -> Sample:
    """transpose(x * row) + late"""

    def reference(x: Any, row: Any, late: Any, **attrs: Any) -> Any:
        return np.transpose(x * row, perm) + late

    body = (("mul", (0, 1), ()), ("transpose", (3,), (("perm", perm),)), ("add", (4, 2), ()))
    return Sample([Spec(shape), Spec(row), Spec(late)], {"body": body}, differentiable=(), reference=reference)


def _running(shape: tuple[int, ...], axis: int) -> Sample:
    """cumsum(x * y) * y"""
    attrs = (("axis", axis), ("reverse", False))

    def reference(x: Any, y: Any, **attrs: Any) -> Any:
        return np.cumsum(x * y, axis=axis) * y

    body = (("mul", (0, 1), ()), ("cumsum", (2,), attrs), ("mul", (3, 1), ()))
    return Sample([Spec(shape), Spec(shape)], {"body": body}, differentiable=(), reference=reference)


SAMPLES: dict[str, list[Sample]] = {
    "fused_sums": [
        _sample((3, 5, 4), (4,), (0, 1)),
        _sample((2, 3, 5), (1, 3, 1), (0, 2)),
        _sample((1, 1), (1,), (0,)),
        _sample((0, 4), (4,), (0,)),
        _sample((7, 9), (), (1,)),
        _sample((6,), (1,), (0,)),
        _sample((2, 33, 40), (40,), (0, 1)),
        _sample((300, 3), (3,), (0,)),
        _keeping((3, 5, 8), (0, 1)),
        _keeping((2, 3, 5), (0, 2)),
        _keeping((7, 300), (1,)),
        _of_many((50, 24), False),
        _of_many((50, 24), True),
        _asking((5, 3, 16), (0, 1)),
        _asking((4, 40), (1,)),
        _asking((3, 5, 8), (0, 2)),
        _asking((700, 24), (0,)),
        Sample(
            [Spec((4, 6))],
            {"body": (), "summed": (0,), "over": (1,)},
            differentiable=(),
            reference=lambda x, **a: np.sum(x, 1),
        ),
    ],
    "finished_sums": [
        _finished((5, 6, 8), (0, 1)),
        _finished((2, 3, 5), (0, 2)),
        _finished((900, 7), (0,)),
        _finished((4, 300), (1,)),
        _finished((6,), (0,)),
    ],
    "fused_stack": [
        _stacked((3, 5, 8), 2),
        _stacked((3, 5, 8), 3),
        _stacked((3, 5), 0),
        _stacked((7,), 1),
        _stacked((0, 4), 1),
        _stacked((2, 3, 40), 0, (1, 0, 2, 3)),
        _stacked((2, 3, 40), 0, (2, 1, 0, 3)),
        _stacked((2, 3, 5), 2, (3, 1, 0, 2)),
    ],
    "fused_rows": [
        _scores((3, 5, 7), (5, 7), 2),
        _scores((2, 3, 4, 8), (2, 1, 1, 8), 3),
        _scores((2, 3, 4, 8), (1, 1, 4, 8), 3),
        _scores((2, 3, 4, 8), (3, 1, 1), 3),
        _scores((4, 6, 8), (6, 1), 1),
        _scores((4, 6, 8), (4, 1, 8), 1),
        _scores((2, 700), (700,), 1),
        _scores((0, 4), (4,), 1),
        _mean_square((6, 40), (6, 1), (1,), False),
        _mean_square((6, 40), (40,), (1,), True),
        _mean_square((6, 40), (1, 40), (0,), False),
        _mean_square((2, 3, 4, 5), (1, 3, 1, 1), (2, 3), True),
        _mean_square((2, 3, 4, 5), (4, 1), (0, 2, 3), False),
        _mean_square((2, 3, 4, 5), (2, 1, 1, 5), (1, 2), False),
        _mean_square((3, 9000), (), (1,), False),
        _mean_square((3000, 5), (5,), (0,), False),
        _mean_square((70, 90), (70, 1), (0, 1), False),
        _turned((33, 40), (1, 0), (40,), (33,)),
        _turned((33, 40), (1, 0), (33, 1), (40, 1)),
        _turned((2, 3, 4), (2, 0, 1), (3, 1), (4, 1, 3)),
        _turned((2, 64, 96), (0, 2, 1), (2, 1, 1), (1, 96, 1)),
        _running((4, 70), 1),
        _running((70, 4), 0),
    ],
}
