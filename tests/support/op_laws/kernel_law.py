"""The law of special values for kernels: what they give has the class of the reference's result (nan, either infinity,
the sign of a zero) and its value within the kernels' tolerance."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from op_laws.entitled import FORWARD, KERNELS, SIGNED_BY_SUMS, SUMS, allowed
from op_laws.evaluation import apply, values_of
from op_laws.special_values import LEAST, MOST, Feed, classes, crossed, feeds, is_fed
from op_samples.sample import Sample

from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder, Op, Pointwise
from dslc.compiler.ir.types import DType

RTOL, ATOL = 2e-5, 2e-6


def fed_cases(ops: dict[str, Op], samples: dict[str, list[Sample]]) -> list[tuple[str, int]]:
    """The names and numbers of the samples that have float inputs, of ops that do work."""
    return [
        (name, i)
        for name in sorted(samples)
        for i, sample in enumerate(samples[name])
        if not ops[name].view and is_fed(sample.arrays(name))
    ]


def fed_node(op: Op, sample: Sample) -> tuple[Node, list[Feed]]:
    """A node of f32, and its feeds."""
    arrays = sample.arrays(op.name)
    given = [crossed(arrays)] if isinstance(op, Pointwise) else list(feeds(arrays))
    attrs = {k: DType.F32 if v is DType.FLOAT else v for k, v in sample.attrs.items()}
    return Builder(name="here").node(op, *values_of(given[0].xs), **attrs), given


def differences(
    node: Node, given: list[Feed], run: Callable[[list[np.ndarray]], Sequence[np.ndarray] | None]
) -> list[str]:
    """Where ``run``, which gives the outputs of a kernel or None, differs from the reference; a line for each feed."""
    name, found = node.op.name, []
    signless = name in SUMS or name in SIGNED_BY_SUMS
    for feed in given:
        with np.errstate(all="ignore"):  # as the executor has it
            wanted = apply(node.op, feed.xs, node.attrs)
            free = _overflowing(node, feed) if name in SUMS else [np.zeros(w.shape, bool) for w in wanted]
        absolute = allowed((*FORWARD.get(name, ()), *KERNELS.get(name, ())), feed.name)
        got = None if absolute is None else run(feed.xs)
        if absolute is None or got is None:
            continue
        for i, (g, w, skip) in enumerate(zip(got, wanted, free, strict=True)):
            bad = _differs(g, w, signless, absolute, isinstance(node.op, Pointwise)) & ~skip
            if bad.any():
                place = tuple(int(k) for k in np.argwhere(bad)[0])
                found.append(f"{feed.name}: output {i} at {place} is {g[place]!r}, not {w[place]!r}")
    return found


def _overflowing(node: Node, feed: Feed) -> list[np.ndarray]:
    """Of sums: where some order of adding overflows, as the sum of sizes does."""
    sizes = apply(
        node.op,
        [np.asarray(np.abs(x), np.float64) if x.dtype.kind == "f" else x for x in feed.xs],
        {k: DType.F64 if v is DType.F32 else v for k, v in node.attrs.items()},
    )
    return [~(np.abs(s) < MOST / 2) if s.dtype.kind == "f" else np.zeros(s.shape, bool) for s in sizes]


def _differs(g: np.ndarray, w: np.ndarray, signless: bool, absolute: float, pointwise: bool) -> np.ndarray:
    assert g.dtype == w.dtype and g.shape == w.shape
    if g.dtype.kind != "f":
        return np.asarray(g != w)
    with np.errstate(all="ignore"):
        finite = np.abs(w[np.isfinite(w)])
        most = 0.0 if pointwise else float(finite.max(initial=0.0))
        near = np.abs(g - w) <= RTOL * (np.abs(w) + most) + absolute + (256 * LEAST if pointwise else ATOL)
        signed = (g == 0) & (w == 0) & (np.signbit(g) != np.signbit(w))
        # one that rounds to the greatest number and one that rounds to infinity are next to each other
        top = MOST * (1 - RTOL)
        edge = (np.abs(g) > top) & (np.abs(w) > top) & (np.sign(g) == np.sign(w))
        alike = (classes(g) == classes(w)) & ~np.isfinite(g)
    return np.asarray(~(near | alike | edge) | signed & (not signless))
