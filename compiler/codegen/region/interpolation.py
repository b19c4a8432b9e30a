"""Regions that resize images by interpolation, and their gradients."""

from __future__ import annotations

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.window_sum import Gathered, Run, space, summed
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import Expr, call, select
from dslc.compiler.ops.attrs import str_attr


@lowers("interpolate")
def interpolate(node: Node) -> list[Launch]:
    make = _nearest if str_attr(node.attrs, "mode") == "nearest" else _linear
    return summed(node, [_unchanged(n) if n == m else make(n, m) for n, m in space(node)])


@lowers("interpolate_grad")
def interpolate_grad(node: Node) -> list[Launch]:
    make = _nearest_back if str_attr(node.attrs, "mode") == "nearest" else _linear_back
    return summed(node, [_unchanged(n) if n == m else make(n, m) for m, n in space(node)])


def _unchanged(n: int) -> Run:
    """An axis whose size does not change."""
    return Run(n, 1, lambda i, t: i)


def _nearest(n: int, m: int) -> Run:
    """The pixel of n that result pixel i of m copies."""
    return Run(n, 1, lambda i, t: call("floordiv", i * n, m))


def _nearest_back(n: int, m: int) -> Run:
    """The pixels of m that copy pixel j of n."""
    taken = [i * n // m for i in range(m)]
    return Run(
        m,
        max(map(taken.count, range(n))),
        lambda j, t: call("floordiv", j * m + (n - 1), n) + t,
        lambda j, i: call("eq", call("floordiv", i * n, m), j),
    )


def _neighbours(g: Gathered, i: Expr, n: int, m: int) -> tuple[Expr, Expr, Expr]:
    """The pixel of n below result pixel i of m, its weight, and the weight of the pixel above."""
    low = g.place(call("floordiv", _centre(i, n, m), 2 * m))
    above = g.let(g.let(call("mod", _centre(i, n, m), 2 * m)) / float(2 * m))
    return low, g.let(select(call("eq", low, n - 1), 1.0, 1 - above)), above


def _centre(i: Expr, n: int, m: int) -> Expr:
    """(i + 0.5)*n/m - 0.5, clamped to at least 0, as a numerator over 2*m."""
    return call("max", i * (2 * n) + (n - m), 0)


def _linear(n: int, m: int) -> Run:
    """The two neighbouring pixels of n that result pixel i of m interpolates."""

    def weight(g: Gathered, i: Expr, place: Expr) -> Expr:
        low, below, above = _neighbours(g, i, n, m)
        return g.let(select(call("eq", low, place), below, above))

    return Run(n, 2, lambda i, t: call("floordiv", _centre(i, n, m), 2 * m) + t, None, weight)


def _linear_back(n: int, m: int) -> Run:
    """The pixels of m that interpolate pixel j of n."""
    low = [max((2 * i + 1) * n - m, 0) // (2 * m) for i in range(m)]

    def begin(j: Expr) -> Expr:
        return select(j < 2, 0, call("floordiv", j * (2 * m) + (n - m - 1), 2 * n))

    def weight(g: Gathered, j: Expr, i: Expr) -> Expr:
        first, below, above = _neighbours(g, i, n, m)
        return g.let(select(call("eq", first, j), below, select(call("eq", first + 1, j), above, 0.0)))

    return Run(m, max(low.count(j - 1) + low.count(j) for j in range(n)), lambda j, t: begin(j) + t, None, weight)
