"""Samples of the ops with channels last: those of the ops with channels first, turned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from op_samples.conv import SAMPLES as CONV
from op_samples.image import SAMPLES as IMAGE
from op_samples.norm import SAMPLES as NORM
from op_samples.sample import Sample, Spec

from dslc.compiler.ops.spatial.channels_last import LAST, RESAMPLED_LAST, to_first, to_last


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


SAMPLES = {
    last.name: [_sample(s) for s in {**CONV, **IMAGE, **NORM}[first.name]]
    for first, last in {**LAST, **RESAMPLED_LAST}.items()
}
