"""Pads the rows of large 16-bit products to multiples of 8 elements, so that a library reads and writes aligned rows.

Before, with rows of 1,027 features::

    %2 = matmul %x, %w {transpose_b=True, ...} : bf16[4096, 768]  # fc forward

After::

    %2 = pad %x {high=(0, 5), value=0.0, ...} : bf16[4096, 1032]  # fc forward
    %3 = pad %w {high=(0, 5), value=0.0, ...} : bf16[768, 1032]  # fc forward
    %4 = matmul %2, %3 {transpose_b=True, ...} : bf16[4096, 768]  # fc forward

A row of an operand or of the result is along its last axis. The axis is padded by zeros in all tensors that have it,
and the result is a slice. A sum over the axis has more zeros. A product and its gradients read the same padded
tensors. Only where the time that the product saves is more than that of the copies, by the rates below. For builds with
libraries; ``pad_classes.py`` pads a loss before, ``pad_columns.py`` the results of ``predict`` with few rows. Linear in
nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from dslc.compiler.codegen.device_model import H200
from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.op import OPS, Builder, Pointwise
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import bool_attr
from dslc.compiler.passes.queries import before_reshapes
from dslc.compiler.passes.rebuild import reading

_ALIGNED: Final = 8  # elements of 16 bits that a product's kernels load at once
_LEAST: Final = 64  # elements of the padded axes of products that tensor cores fill
_LARGE: Final = 1 << 26  # multiply-adds
#: Of cuBLASLt on an H200, operations per second and the seconds that a product takes at least in addition: with aligned
#: rows; with rows of an even number of elements; with odd rows (``benchmarks/results/ops.md``, "Products of odd rows").
_WHOLE: Final = 550e12
_EVEN: Final = 170e12
_ODD: Final = 95e12
_MORE: Final = 4e-6
_COPY: Final = 2e-6  # seconds of a launch


def pad_widths(graph: Graph) -> Graph:
    """The graph with such products; the same object if there are none."""
    found = [each for node in graph.nodes if (each := _Product.of(node)) is not None]
    if not found:
        return graph
    readers, instead = graph.readers(), dict[Value, Value]()
    padded: dict[tuple[Value, tuple[int, ...]], Value] = {}
    for each in found:
        if each.pays(readers.get(each.node.out, ())):
            instead[each.node.out] = each.wide(padded)
    return reading(graph, instead) if instead else graph


class _Product:
    """A product ``m`` x ``k`` times ``k`` x ``n``, some of whose rows are not aligned. ``axes``: the names of the last
    two axes of both operands and of the result; ``sizes``: of the three; ``odd``: which of them are padded."""

    def __init__(self, node: Node, axes: tuple[str, str, str], sizes: dict[str, int]) -> None:
        self.node, self.axes, self.sizes = node, axes, sizes
        lasts = {names[-1] for names in axes}
        self.odd = [name for name in sizes if name in lasts and sizes[name] % _ALIGNED]

    @staticmethod
    def of(node: Node) -> _Product | None:
        if node.op.name != "matmul" or not node.types[0].dtype.is_half:
            return None
        a, b = node.input_types
        if a.dtype != b.dtype or min(a.rank, b.rank) < 2:
            return None
        names = (
            "km" if bool_attr(node.attrs, "transpose_a") else "mk",
            "nk" if bool_attr(node.attrs, "transpose_b") else "kn",
            "mn",
        )
        sizes = {name: size for t, each in zip((a, b), names) for name, size in zip(each, t.ints[-2:])}
        found = _Product(node, names, sizes)
        large = all(size + -size % _ALIGNED >= _LEAST for size in sizes.values())
        large = large and prod(node.types[0].ints) * sizes["k"] >= _LARGE
        return found if found.odd and large else None

    def pays(self, readers: Sequence[Node]) -> bool:
        """Whether the product saves more than half of the copies of its operands, which its gradients read too, and the
        copy of its result, unless pointwise ops read it."""
        a, b = self.node.input_types
        result = self.node.types[0]
        work = 2 * prod(result.ints) * self.sizes["k"]
        moved = (a.bytes + b.bytes + result.bytes) / H200.bandwidth
        rate = _ODD if any(self.sizes[name] % 2 for name in self.odd) else _EVEN
        saved = _MORE + max(work / rate, moved) - max(work / _WHOLE, moved)
        copies = [t for t, names in zip((a, b), self.axes) if set(names) & set(self.odd)]
        cost = sum(map(_copied, copies)) / 2
        if set("mn") & set(self.odd) and not all(isinstance(node.op, Pointwise) for node in readers):
            cost += _copied(result)
        return saved > cost

    def wide(self, padded: dict[tuple[Value, tuple[int, ...]], Value]) -> Value:
        """What takes the place of the result. ``padded``: operands that are padded already."""
        b, node = Builder().at(self.node, self.node.phase), self.node
        more = [[self._more(name) for name in names] for names in self.axes]
        operands = [_padded(b, value, each, padded) for value, each in zip(node.inputs, more)]
        y, stops = b(node.op, *operands, **node.attrs), node.types[0].ints
        if y.type.ints == stops:
            return y
        return b(OPS["slice"], y, starts=(0,) * len(stops), stops=stops, steps=(1,) * len(stops))

    def _more(self, name: str) -> int:
        return -self.sizes[name] % _ALIGNED if name in self.odd else 0


def _padded(b: Builder, value: Value, more: Sequence[int], padded: dict[tuple[Value, tuple[int, ...]], Value]) -> Value:
    """The value with ``more`` zeros at the end of its last two axes. Of a reshape that keeps rows, the source is
    padded, so that other products may read it in another shape."""
    source = before_reshapes(value)
    rows = not more[0] and source.type.ints[-1:] == value.type.ints[-1:]
    known = source if rows else value
    high = (*(0,) * (known.type.rank - 2), *more) if known.type.rank > 1 else (more[1],)
    if not any(high):
        return value
    if (known, high) not in padded:
        zeros = (0,) * known.type.rank
        padded[known, high] = b(OPS["pad"], known, low=zeros, high=high, interior=zeros, value=0.0)
    shape = tuple(size + each for size, each in zip(value.type.ints, (*(0,) * (value.type.rank - 2), *more)))
    found = padded[known, high]
    return found if found.type.ints == shape else b(OPS["reshape"], found, shape=shape)


def _copied(type: TensorType) -> float:
    """The seconds of a copy."""
    return _COPY + 2 * type.bytes / H200.bandwidth
