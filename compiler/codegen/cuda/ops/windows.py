"""Resampling, adaptive pools and maxpools with indices as GPU kernels without reductions: a thread goes through the few
source elements of each of its result elements. Of more than ``_MOST_STEPS`` elements, threads share one result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import interpolation, pooling
from dslc.compiler.codegen.region.window_sum import Run, Unrolled, space
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import Expr, as_expr, call, select

_MOST_STEPS: Final = 32  # source elements of a result element


def _steps(runs: Sequence[Run]) -> int:
    return math.prod(r.steps for r in runs)


@lowers("interpolate", "interpolate_last", target="cuda")
def interpolate(node: Node) -> list[Launch]:
    return _added(node, interpolation.forth(node)) or interpolation.interpolate(node)


@lowers("interpolate_grad", "interpolate_grad_last", target="cuda")
def interpolate_grad(node: Node) -> list[Launch]:
    return _added(node, interpolation.back(node)) or interpolation.interpolate_grad(node)


@lowers("adaptive_avgpool", "adaptive_avgpool_last", target="cuda")
def adaptive_avgpool(node: Node) -> list[Launch]:
    def mean(u: Unrolled, total: Expr) -> Expr:
        return total / pooling.window_size(u, u.own, space(node))

    return _added(node, pooling.adaptive(node), finish=mean) or pooling.adaptive_avgpool(node)


@lowers("adaptive_avgpool_grad", "adaptive_avgpool_grad_last", target="cuda")
def adaptive_avgpool_grad(node: Node) -> list[Launch]:
    sizes = [(n, m) for m, n in space(node)]

    def share(u: Unrolled, x: Expr, places: Sequence[Expr]) -> Expr:
        return u.let(x / pooling.window_size(u, places, sizes))

    return _added(node, pooling.adaptive(node), each=share) or pooling.adaptive_avgpool_grad(node)


@lowers("adaptive_maxpool", "adaptive_maxpool_last", target="cuda")
def adaptive_maxpool(node: Node) -> list[Launch]:
    return _greatest(node, pooling.adaptive(node)) or pooling.adaptive_maxpool(node)


@lowers("maxpool_places", target="cuda")
def maxpool_places(node: Node) -> list[Launch]:
    return _greatest(node, pooling.placed(node)) or pooling.maxpool_places(node)


def _added(
    node: Node, runs: Sequence[Run],
    each: Callable[[Unrolled, Expr, Sequence[Expr]], Expr] | None = None,
    finish: Callable[[Unrolled, Expr], Expr] | None = None,
) -> list[Launch] | None:  # fmt: skip
    """The weighted sum of the source elements of each result element, the last axis first; None if they are many."""
    if _steps(runs) > _MOST_STEPS:
        return None
    u, total = Unrolled(node, runs), as_expr(0.0)
    for point in u.points():
        x = u.fetch(0, point.where, point.mask)
        if each is not None:
            x = each(u, x, point.places)
        if point.weight is not None:
            x = u.let(x * point.weight)
        if each is not None or point.weight is not None:
            x = u.let(select(point.mask, x, 0.0))
        total = x if total.function == "const" else u.let(total + x)
    u.store(total if finish is None else finish(u, total))
    return u.launch()


def _greatest(node: Node, runs: Sequence[Run]) -> list[Launch] | None:
    """The first maximum of each run and its index in the image; nan counts as greatest. None if elements are many."""
    if _steps(runs) > _MOST_STEPS:
        return None
    u = Unrolled(node, runs)
    best, place, found = as_expr(-math.inf), as_expr(0), as_expr(False)
    for point in u.points():
        x = u.fetch(0, point.where, point.mask)
        ahead = call("or", x > best, call("and", call("ne", x, x), call("eq", best, best)))
        taken = u.holds(call("and", point.mask, call("or", call("not", found), ahead)))
        best, place = u.let(select(taken, x, best)), u.place(select(taken, point.where, place))
        found = u.holds(call("or", found, point.mask))
    u.store(best)
    u.store(place, 1)
    return u.launch()
