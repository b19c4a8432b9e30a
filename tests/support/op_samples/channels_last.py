"""Samples of the ops with channels last: those of the ops with channels first, turned; and of parts of group norms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from op_samples.conv import SAMPLES as CONV
from op_samples.image import SAMPLES as IMAGE
from op_samples.norm import SAMPLES as NORM
from op_samples.sample import Sample, Spec

from dslc.compiler.ops.spatial.channels_last import GROUPED_LAST, LAST, RESAMPLED_LAST, to_first, to_last


def _turned(x: Any) -> Any:
    if isinstance(x, Spec):
        return replace(x, shape=tuple(x.shape[a] for a in to_last(len(x.shape))))
    return np.ascontiguousarray(np.asarray(x).transpose(to_last(np.ndim(x))))


def _sample(sample: Sample) -> Sample:
    inner = sample.reference

    def reference(*xs: Any, **attrs: Any) -> Any:
        assert inner is not None
        found = inner(*(x.transpose(to_first(x.ndim)) for x in xs), **attrs)
        if isinstance(found, tuple):
            return tuple(None if y is None else _turned(y) for y in found)
        return _turned(found)

    inputs = [_turned(x) for x in sample.inputs]
    return replace(sample, inputs=inputs, reference=None if inner is None else reference, differentiable=())


def _channel_sums(x: Any) -> Any:
    apart = np.moveaxis(x, -1, 1).reshape(x.shape[0], x.shape[-1], -1)
    apart = apart - apart[:, :, :1]
    return apart.sum(2), (apart**2).sum(2)


def _group_moments(added: Any, squares: Any, weight: Any, *x: Any, places: int, eps: float) -> Any:
    each = added.shape[2]
    first = x[0].reshape(len(added), -1, added[0].size)[:, 0].reshape(added.shape) if x else 0
    of_squares = squares + 2 * first * added + places * first**2  # of x itself
    mean = (added / places + first).mean(2)
    invstd = (of_squares.sum(2) / (places * each) - mean**2 + eps) ** -0.5
    wide = [np.repeat(v, each).reshape(added.shape) for v in (mean, invstd)]
    return mean, invstd, wide[0], wide[1] * weight.reshape(1, -1, each)


def _group_slopes(added: Any, sloped: Any, weight: Any, invstd: Any, *, count: int) -> Any:
    factor = weight.reshape(1, *added.shape[1:])
    slope, shift = ((x * factor).sum(2, keepdims=True) / count for x in (sloped, added))
    scale, ones = invstd[:, :, None], np.ones(added.shape)
    return slope * scale**3 * ones, shift * scale * ones


def _sums_of_groups(batch: int, groups: int, each: int, places: int) -> tuple[list[Sample], Sample]:
    rng = np.random.default_rng([batch, groups, each, places])
    x, dy = rng.uniform(-2, 2, (2, batch, places, groups, each))
    weight, image = Spec((groups * each,)), x.reshape(batch, places, 1, groups * each)
    forward = []
    for shift in ([], [image]):
        apart = x - x[:, :1] if shift else x
        given = [apart.sum(1), (apart**2).sum(1), weight, *shift]
        attrs = {"places": places, "eps": 1e-5}
        forward.append(Sample(given, attrs, differentiable=(), reference=_group_moments, atol=1e-4))
    centred = x - x.mean((1, 3), keepdims=True)
    given = [dy.sum(1), (dy * centred).sum(1), weight, (centred**2).mean((1, 3)) ** -0.5]
    attrs = {"count": each * places}
    return forward, Sample(given, attrs, differentiable=(), reference=_group_slopes, atol=1e-4)


_GROUPS = [_sums_of_groups(*sizes) for sizes in ((2, 3, 4, 5), (1, 1, 6, 4), (3, 5, 1, 7), (2, 2, 300, 3))]

SAMPLES = {
    last.name: [_sample(s) for s in {**CONV, **IMAGE, **NORM}[first.name]]
    for first, last in {**LAST, **RESAMPLED_LAST, **GROUPED_LAST}.items()
}
SAMPLES["channel_sums"] = [
    Sample([Spec(shape)], differentiable=(), reference=_channel_sums)
    for shape in ((2, 3, 4, 8), (1, 5, 3), (2, 200, 6))
]
SAMPLES["group_moments"] = [sample for forward, _ in _GROUPS for sample in forward]
SAMPLES["group_slopes"] = [backward for _, backward in _GROUPS]
