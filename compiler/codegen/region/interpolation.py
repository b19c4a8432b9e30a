"""Regions that resize images by interpolation, and their gradients."""

from __future__ import annotations

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.window_sum import Gathered, Run, space, summed
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import Expr, as_expr, call, select
from dslc.compiler.ops.spatial.resampling import Resampling, resamplings


@lowers("interpolate", "interpolate_last")
def interpolate(node: Node) -> list[Launch]:
    return summed(node, forth(node))


@lowers("interpolate_grad", "interpolate_grad_last")
def interpolate_grad(node: Node) -> list[Launch]:
    return summed(node, back(node))


def forth(node: Node) -> list[Run]:
    """The runs of ``interpolate``."""
    return [_run(r) for r in resamplings(node.attrs, *zip(*space(node)))]


def back(node: Node) -> list[Run]:
    """The runs of its gradient."""
    return [_run_back(r) for r in resamplings(node.attrs, *reversed([*zip(*space(node))]))]


def _run(r: Resampling) -> Run:
    """The pixels that make a result pixel."""
    if r.unchanged:
        return Run(r.n, 1, lambda i, t: i)
    if r.mode.startswith("nearest"):
        return Run(r.n, 1, lambda i, t: call("floordiv", _at(r, i), r.position[2]), reach=_reach(r))
    return _filtered(r) if r.filtered else _linear(r)


def _run_back(r: Resampling) -> Run:
    """The result pixels that a pixel is part of."""
    if r.unchanged:
        return Run(r.n, 1, lambda i, t: i)
    if r.mode.startswith("nearest"):
        return _nearest_back(r)
    return _filtered_back(r) if r.filtered else _linear_back(r)


def _at(r: Resampling, i: Expr) -> Expr:
    """The position of result pixel i, times d."""
    a, c, _ = r.position
    return i * a + c if c else i * a


def _reach(r: Resampling) -> int:
    """More than any integer that these formulas compute."""
    a, c, d = r.position
    return max(a * r.m, d * (r.n + 3)) + a + abs(c) + (r.radius if r.filtered else 0)


def _floors(r: Resampling) -> list[int]:
    """How many result pixels have a position in pixel -1, 0, 1 and so on."""
    a, c, d = r.position
    counts = [0] * (r.n + 1)
    for i in range(r.m):
        counts[(a * i + c) // d + 1] += 1
    return counts


def _nearest_back(r: Resampling) -> Run:
    """The pixels of m that copy pixel j of n."""
    a, c, d = r.position
    return Run(
        r.m,
        max(_floors(r)),
        lambda j, t: call("floordiv", j * d + (a - 1 - c), a) + t,
        lambda j, i: call("eq", call("floordiv", _at(r, i), d), j),
        reach=_reach(r),
    )


def _neighbours(g: Gathered, i: Expr, r: Resampling) -> tuple[Expr, Expr, Expr]:
    """The pixel of n below result pixel i of m, its weight, and the weight of the pixel above."""
    d = r.position[2]
    low = g.place(call("floordiv", _centre(i, r), d))
    above = g.let(_part(g.let(call("mod", _centre(i, r), d)), d))
    return low, g.let(select(call("eq", low, r.n - 1), 1.0, 1 - above)), above


def _part(x: Expr, of: int) -> Expr:
    """x / of; by a product where that has the same bits."""
    return x * (1.0 / of) if of & (of - 1) == 0 else x / float(of)


def _centre(i: Expr, r: Resampling) -> Expr:
    """The position times d, clamped to at least 0."""
    a, c, _ = r.position
    return call("max", i * a + c, 0)


def _linear(r: Resampling) -> Run:
    """The two neighbouring pixels of n that result pixel i of m interpolates."""

    def weight(g: Gathered, i: Expr, place: Expr) -> Expr:
        low, below, above = _neighbours(g, i, r)
        return g.let(select(call("eq", low, place), below, above))

    return Run(r.n, 2, lambda i, t: call("floordiv", _centre(i, r), r.position[2]) + t, None, weight, _reach(r))


def _linear_back(r: Resampling) -> Run:
    """The pixels of m that interpolate pixel j of n."""
    a, c, d = r.position
    counts = _floors(r)
    counts = [counts[0] + counts[1], *counts[2:]]  # positions below 0 are clamped

    def begin(j: Expr) -> Expr:
        return select(j < 2, 0, call("floordiv", j * d + (a - c - d - 1), a)) if a else as_expr(0)

    def weight(g: Gathered, j: Expr, i: Expr) -> Expr:
        first, below, above = _neighbours(g, i, r)
        return g.let(select(call("eq", first, j), below, select(call("eq", first + 1, j), above, 0.0)))

    most = max(low + own for low, own in zip([0, *counts], counts))
    return Run(r.m, most, lambda j, t: begin(j) + t, None, weight, _reach(r))


def _filtered(r: Resampling) -> Run:
    """The pixels of n around the position of result pixel i of m. A plain filter takes the border for those outside."""

    def first(i: Expr) -> Expr:
        return call("floordiv", _at(r, i) - r.radius, r.position[2]) + 1

    def weight(g: Gathered, i: Expr, j: Expr) -> Expr:
        return _filter(g, r, g.place(_at(r, i) - j * r.position[2]))

    if r.widened:
        return Run(r.n, min(r.n, r.steps), lambda i, t: call("max", first(i), 0) + t, None, weight, _reach(r))
    return Run(r.n, r.steps, lambda i, t: first(i) + t, None, weight, _reach(r), clamped=True)


def _filtered_back(r: Resampling) -> Run:
    """The pixels of m around pixel j of n."""
    a, c, d = r.position

    def place(j: Expr, t: Expr) -> Expr:
        return call("max", call("floordiv", j * d - (c + r.radius), a) + 1, 0) + t if a else t

    def weight(g: Gathered, j: Expr, i: Expr) -> Expr:
        offset = g.place(_at(r, i) - j * d)
        if r.widened:
            return _filter(g, r, offset)
        if r.n == 1:
            return as_expr(1.0)  # the only pixel is also the border on both sides
        outwards = g.place(select(call("eq", j, 0), d, -d))
        beyond = _filter(g, r, g.place(offset + outwards)) + _filter(g, r, g.place(offset + outwards * 2))
        border = call("or", call("eq", j, 0), call("eq", j, r.n - 1))
        return g.let(_filter(g, r, offset) + select(border, beyond, 0.0))

    steps = min(r.m, -(-2 * r.radius // a)) if a else r.m
    return Run(r.m, steps, place, None, weight, _reach(r))


def _filter(g: Gathered, r: Resampling, offset: Expr) -> Expr:
    """The filter at an offset, given times d."""
    u = g.let(_part(g.let(call("abs", offset)), r.unit))
    if r.mode == "linear":
        return g.let(call("max", 1 - u, 0.0))
    near, far = r.cubic(u)
    return g.let(select(u < 1.0, near, select(u < 2.0, far, 0.0)))
