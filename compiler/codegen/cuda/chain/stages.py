"""The stages of a chain: what its kernel computes between two waits of its blocks for one another.

A product of few rows is a stage, with the node that computes its left factor from rows (a normalisation), and with the
pointwise node that reads it. Attention of few queries is a stage, with the rows that are put into its tables; the parts
that its blocks make are added by every block of the product that reads it. So a layer of a transformer has five stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final, TypeAlias

from dslc.compiler.codegen.cuda.attention.few_queries import FewQueries
from dslc.compiler.codegen.cuda.contraction.few_rows import FewRows, few_rows
from dslc.compiler.codegen.cuda.kernel_spec import Unfit
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops.copies.put_rows import PutRowsKernel
from dslc.compiler.codegen.region.ir import Access, Let, Region
from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.index_limits import I32_ELEMENTS, I32_PADDED_ELEMENTS
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.compound.contraction import product_and_epilogue
from dslc.compiler.ops.compound.strided_attention import View, reads_of

#: Blocks of a chain, one on each multiprocessor, on any device with so many (an A100 has 108, an H200 132, a B200 148).
BLOCKS: Final = 108
THREADS: Final = 512
_MOST_POINTERS: Final = 480  # of a kernel, whose parameters may have 4 KiB
_MOST_LEFT: Final = 64 << 10  # bytes of a left factor in shared memory
_MOST_EACH: Final = 48  # numbers of a thread that computes a left factor
_MOST_PUT: Final = 8  # rows
_KEPT: Final = (DType.F32, DType.BF16, DType.F16)
_HELD: Final = (*_KEPT, DType.B1)
_COMBINES: Final = ("sum", "max", "min")


@dataclass(frozen=True)
class Rows:
    """A left factor from rows: ``region`` of ``node``, whose inputs are ``reads``."""

    node: Node
    region: Region
    reads: tuple[Value, ...]


@dataclass(frozen=True)
class Attention:
    """``spec``: as a kernel of its own. ``put``: the node that puts rows into the tables that are k and v."""

    node: Node
    spec: FewQueries
    put: Node | None = None


@dataclass(frozen=True)
class Product:
    """``spec``: as a kernel of its own. ``left``: what computes the left factor first, if not an earlier stage."""

    node: Node
    spec: FewRows
    left: Rows | Attention | None = None

    @property
    def weights(self) -> Value:
        """The right factor."""
        return self.node.inputs[1]


Stage: TypeAlias = Product | Attention


def is_member(node: Node) -> bool:
    """Whether a node may be part of a chain, with the right neighbours."""
    if node.op.name in ("matmul", "contraction"):
        return product_of(node) is not None
    if node.op.name == "few_queries_sdpa":
        return _attention_of(node) is not None
    if node.op.name == "put_rows":
        return put_of(node) is not None
    return _region_of(node) is not None


def stages_of(graph: Graph) -> list[Stage]:
    """The stages of a chain's body. Raises Misfit with the node that does not fit."""
    stages = _Stages(graph)
    for node in graph.nodes:
        stages.add(node)
    stages.finish()
    return stages.found


class _Stages:
    """The stages so far of a chain's body. ``parts``: what will compute a product's left factor; ``puts``: a table ->
    the node that puts rows into it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.outer = {source.value for source in graph.inputs}
        self.readers, self.roots = graph.readers(), set(graph.roots)
        self.found: list[Stage] = []
        self.parts: dict[Value, Rows | Attention] = {}
        self.puts: dict[Value, Node] = {}

    def add(self, node: Node) -> None:
        """Adds the next node."""
        if (product := product_of(node)) is not None:
            self._add_product(node, product)
        elif node.op.name == "few_queries_sdpa" and (attention := _attention_of(node)) is not None:
            self._add_attention(node, attention)
        elif node.op.name == "put_rows" and put_of(node) is not None:
            self._add_put(node)
        elif (region := _region_of(node)) is not None:
            self._add_rows(node, *region)
        else:
            raise Misfit(node, "it is no stage")

    def finish(self) -> None:
        """Raises Misfit if the stages together do not make a kernel."""
        used = {stage.put for stage in self.found if isinstance(stage, Attention)}
        for node in self.puts.values():
            if node not in used:
                raise Misfit(node, "its rows do not fit the attention that reads them")
        read = {v for node in self.graph.nodes for v in node.inputs if v in self.outer}
        if len(read | {*self.graph.outputs.values()}) > _MOST_POINTERS:
            raise Misfit(self.graph.nodes[-1], "the chain has too many tensors")

    def _add_product(self, node: Node, spec: FewRows) -> None:
        if node.inputs[1] not in self.outer:
            raise Misfit(node, "its weights are not there before the chain")
        if any(v in self.parts for v in node.inputs[1:]):
            raise Misfit(node, "what comes after it reads rows that only products have")
        self.found.append(Product(node, spec, self.parts.get(node.inputs[0])))

    def _add_attention(self, node: Node, spec: FewQueries) -> None:
        stage = Attention(node, spec, _put_for(node, spec, self.puts, self.outer))
        there = all(v in self.outer or v in self.puts for v in node.inputs[1:])
        if not there or node.inputs[0] in self.parts:
            raise Misfit(node, "its keys or values are not there before the chain")
        if not self._is_only_left(node) or prod(node.types[0].ints) != spec_elements(spec):
            raise Misfit(node, "something else than products reads it")
        self.found.append(stage)
        self.parts[node.out] = stage

    def _add_put(self, node: Node) -> None:
        tables, ids = node.inputs[: len(node.outputs)], node.inputs[-1]
        if not all(v in self.outer for v in (*tables, ids)):
            raise Misfit(node, "its tables or its ids are not there before the chain")
        attending = {reader for v in node.outputs for reader in self.readers.get(v, ())}
        if len(attending) != 1 or not all(reader.op.name == "few_queries_sdpa" for reader in attending):
            raise Misfit(node, "something else than attention reads its tables")
        self.puts.update(dict.fromkeys(node.outputs, node))

    def _add_rows(self, node: Node, region: Region, reads: tuple[object, ...]) -> None:
        if not self._is_only_left(node) or any(v in self.parts for v in node.inputs):
            raise Misfit(node, "something else than products reads it")
        self.parts[node.outputs[0]] = Rows(node, region, tuple(v for v in reads if isinstance(v, Value)))

    def _is_only_left(self, node: Node) -> bool:
        """Whether products alone read a node's first output, as their left factor, and nothing its others."""
        value, *others = node.outputs
        own = self.readers.get(value, ())
        if not own or value in self.roots or any(v in self.roots or self.readers.get(v) for v in others):
            return False
        return all(product_of(r) is not None and r.inputs[0] is value and value not in r.inputs[1:] for r in own)


class Misfit(Unfit):
    """``node`` does not fit a chain; the text says why."""

    def __init__(self, node: Node, why: str) -> None:
        super().__init__(why)
        self.node = node


def product_of(node: Node) -> FewRows | None:
    """The kernel of a product of few rows that a stage can compute."""
    if node.op.name == "matmul":
        spec = few_rows(node)
    elif node.op.name == "contraction":
        first, last = product_and_epilogue(node)
        spec = few_rows(first, last)
    else:
        return None
    if spec is None or (spec.epilogue is not None and not all(map(_plain, spec.epilogue.region.inputs))):
        return None
    whole = spec.each * spec.dtype.itemsize == 16  # the bytes that a thread of a stage loads at once
    return spec if whole and prod(node.types[0].ints) < I32_PADDED_ELEMENTS else None


def put_of(node: Node) -> PutRowsKernel | None:
    """The kernel of ``put_rows`` of few rows."""
    launches = lower(node)
    if not launches or len(launches) != 1 or not isinstance(launches[0].spec, PutRowsKernel):
        return None
    return launches[0].spec if launches[0].spec.put <= _MOST_PUT else None


def spec_elements(spec: FewQueries) -> int:
    """Elements of the result."""
    return spec.stack * spec.rows * spec.features


def _attention_of(node: Node) -> FewQueries | None:
    launches = lower(node)
    if not launches or not isinstance(launches[0].spec, FewQueries):
        return None
    spec = launches[0].spec
    left = spec_elements(spec) * spec.dtype.itemsize
    cached = max(spec.layouts[1][-1], spec.layouts[2][-1]) * spec.keys
    return spec if left <= _MOST_LEFT and cached < I32_ELEMENTS else None


def _put_for(node: Node, spec: FewQueries, puts: dict[Value, Node], outer: set[Value]) -> Node | None:
    """The node that makes both tables of an attention. Raises Misfit if its stage cannot do both."""
    k, v = node.inputs[1:3]
    if k not in puts and v not in puts:
        return None
    made = puts.get(k)
    if made is None or puts.get(v) is not made or k is v or len(made.outputs) != 2:
        raise Misfit(node, "two nodes put rows into its tables, or one into others, too")
    put = put_of(made)
    assert put is not None
    same = put.source is spec.dtype and put.dtype is spec.kept and spec.kept.itemsize >= spec.dtype.itemsize
    if not same or put.table[0] != spec.keys or any(spec.layouts[n][-1] != put.width for n in (1, 2)):
        raise Misfit(node, "the rows of its tables are not its keys")
    if any(
        not _inside_rows(spec, view, layout, put.width) for view, layout in zip(reads_of(made.attrs), spec.layouts[1:3])
    ):
        raise Misfit(node, "features that are neighbours in its tables are not in their new rows")
    return made


def _inside_rows(spec: FewQueries, view: View, layout: tuple[int, ...], width: int) -> bool:
    """Whether each 8 features of a new row are neighbours where it was made, at a multiple of 8, and each head begins
    within a row of the table."""
    start, outer, inner, _ = layout
    heads = range(0, spec.stack * spec.share, spec.share)
    begins = [start + h // spec.inner * outer + h % spec.inner // spec.share * inner for h in heads]
    whole = all(at >= 0 and at + spec.features <= width for at in begins)
    steps = [step for size, step in zip(view.shape[:-1], view.strides) if size > 1]
    return whole and view.strides[-1] == 1 and not any(n % 8 for n in (view.shape[-1], view.start, *steps))


def _region_of(node: Node) -> tuple[Region, tuple[object, ...]] | None:
    """The region of a node that computes each row of its first output from one row of each input, and what the region
    reads."""
    if not node.outputs or node.op.view or node.op.random or len(node.types[0].ints) < 2:
        return None
    type, rows, inner = node.types[0], prod(node.types[0].ints[:-1]), node.types[0].ints[-1]
    if not 0 < rows <= 8 or type.dtype not in _KEPT or not inner:
        return None
    launches = lower(node)
    if not launches or len(launches) != 1 or not isinstance(region := launches[0].spec, Region):
        return None
    if prod(region.outer) != rows or region.inner != (inner,) or not region.outputs or region.indices:
        return None
    if not _writes_whole_rows(region, type.dtype) or not _computes_in_stages(region):
        return None
    if not all(_plain(a, offset=True) and a.dtype in _HELD for a in region.inputs):
        return None
    each = rows * -(-inner // THREADS) * sum(a.strides[-1] != 0 for a in region.inputs)
    fits = each <= _MOST_EACH and rows * inner * type.dtype.itemsize <= _MOST_LEFT
    return (region, launches[0].reads) if fits else None


def _writes_whole_rows(region: Region, dtype: DType) -> bool:
    """Whether the first output is dense and the elements of its rows are written by one stage."""
    out, inner = region.outputs[0], region.inner[0]
    rows = [inner * prod(region.outer[axis + 1 :]) for axis in range(len(region.outer))]
    stages = [stage for stage in region.stages if any(s.output == 0 for s in stage.stores)]
    dense = [*out.strides] == [*rows, 1] and not out.offset and out.dtype is dtype
    return dense and len(stages) == 1 and stages[0].element


def _computes_in_stages(region: Region) -> bool:
    """Whether the kernel of a chain has code for the region's stages, of which there are several."""
    lets = [let for stage in region.stages for let in stage.lets]
    if not all(isinstance(let, Let) and let.dtype in _HELD for let in lets):
        return False
    halves = sum(isinstance(let, Let) and let.dtype.is_half for let in lets)
    stored = {s.value for stage in region.stages for s in stage.stores}
    known = all(reduce.combine in _COMBINES for stage in region.stages for reduce in stage.reduces)
    return known and halves <= len(stored) and not any(s.flags for s in region.stages) and len(region.stages) > 1


def _plain(access: Access, offset: bool = False) -> bool:
    """Whether strides alone say where an input's elements lie; with ``offset``, strides and an offset."""
    return access.repeat == 1 and not access.bits and not access.mixed_radix and (offset or not access.offset)
