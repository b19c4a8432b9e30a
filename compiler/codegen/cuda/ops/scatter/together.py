"""``together``: gathers from tables, scatters to them, or orders of their ids. Those with equal code are one launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Final, Protocol

from dslc.compiler.codegen.cuda.cuda_cpp import (
    C_TYPES,
    Code,
    Numbered,
    Numbers,
    Pointers,
    arguments,
    chosen,
    constants,
    declared,
    put,
)
from dslc.compiler.codegen.cuda.hardware import LOAD_BYTES
from dslc.compiler.codegen.cuda.ops.scatter.row_order import as_signed, order_of
from dslc.compiler.codegen.cuda.ops.scatter.scatter_rows import Rows, RowsFew
from dslc.compiler.codegen.cuda.region.writer import power_of_two
from dslc.compiler.codegen.launch import Launch, ScalarArgs, SizeGeneric
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.compound.together import members

_BLOCK_THREADS: Final = 256


class Member(Protocol):
    """A kernel ``k(ARGUMENTS, NUMBERS)`` of a grid of one axis, which begins with its numbers."""

    @property
    def reads(self) -> Pointers: ...
    @property
    def writes(self) -> Pointers: ...
    @property
    def code(self) -> Code: ...
    @property
    def numbers(self) -> Numbers: ...
    @property
    def geometry(self) -> Geometry: ...


@dataclass(frozen=True)
class GatherTable(Numbered):
    """``k(rows, ids, y, numbers)``: ``length`` rows of ``inner`` elements of a table of ``count``, as ``result``."""

    table: DType
    ids: DType
    result: DType
    length: int
    count: int
    inner: int
    reads: ClassVar[Pointers] = (("const T *__restrict__ ", "rows"), ("const I *__restrict__ ", "ids"))
    writes: ClassVar[Pointers] = (("S *__restrict__ ", "y"),)

    @property
    def _most(self) -> int:
        return LOAD_BYTES // max(self.table.itemsize, self.result.itemsize)

    @property
    def vector(self) -> int:
        """Elements that a thread reads at once."""
        return min(self._most, power_of_two(self.inner))

    @property
    def each(self) -> int:
        """Vectors of a thread, which reads as many bytes of rows of any length."""
        return self._most // self.vector

    @property
    def geometry(self) -> Geometry:
        vectors = self.length * self.inner // self.vector
        return Geometry((-(-vectors // (self.each * _BLOCK_THREADS)), 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def numbers(self) -> Numbers:
        numbers = Numbers(ALL=self.length * self.inner // self.vector, COUNT=self.count, INNER=self.inner)
        numbers.divisor("ROW", self.inner // self.vector)
        return numbers

    @property
    def code(self) -> Code:
        names = {"T": C_TYPES[self.table], "I": C_TYPES[self.ids], "S": C_TYPES[self.result]}
        text = "".join(f"using {name} = {type};\n" for name, type in names.items())
        text += self.numbers.text() + constants(THREADS=_BLOCK_THREADS, EACH=self.each, VEC=self.vector)
        text += arguments(self.reads, self.writes)
        missing = "store(to, __uint_as_float(0x7FC00000u));" if self.result.is_float else "*to = 0;"
        text += put(self.table, self.result)
        return Code("gather_tables.cu", f"{text}__device__ __forceinline__ void missing(S *to) {{ {missing} }}\n")


@dataclass(frozen=True)
class Stacked(SizeGeneric):
    """``k(reads, reads of the second member, ..., writes, writes of the second member, ..., numbers)``: kernels with
    equal code in one launch. The second index of a block says to which member it belongs; blocks that a member does not
    have return at once."""

    members: tuple[Member, ...]

    @property
    def geometry(self) -> Geometry:
        first = self.members[0].geometry
        return Geometry((max(self._blocks), len(self.members), 1), first.block)

    @property
    def _blocks(self) -> list[int]:
        return [member.geometry.grid[0] for member in self.members]

    @property
    def _numbers(self) -> dict[str, list[int | float]]:
        """The values of each number: one that all members share, or one for each."""
        each = [dict(zip(member.numbers.names, (v for _, v in member.numbers.scalar_args))) for member in self.members]
        found = {name: [numbers[name] for numbers in each] for name in each[0]}
        found["BLOCKS"] = list(self._blocks)
        return {name: values[:1] if len(set(values)) == 1 else values for name, values in found.items()}

    @property
    def scalar_args(self) -> ScalarArgs:
        return tuple(("i32", value) for values in self._numbers.values() for value in values)

    @property
    def code(self) -> Code:
        first, numbers = self.members[0], self._numbers
        base, others = first.code, range(1, len(self.members))
        sides = [
            [*declared(side), *(each for i in others for each in declared(side, str(i)))]
            for side in (first.reads, first.writes)
        ]
        scalars = [f"int {name}_{i}" for name, values in numbers.items() for i in range(len(values))]
        pointers = [name for side in (first.reads, first.writes) for _, name in side]
        own = [name for name, values in numbers.items() if len(values) > 1]
        picks = [[f"{name} = {name}{i};" for name in pointers] for i in others]
        picks = [[*some, *(f"found.{n} = {n}_{i};" for n in own if n != "BLOCKS")] for i, some in zip(others, picks)]
        given = ", ".join(f"{name}_0" for name in numbers if name != "BLOCKS")
        blocks = [[f"found = BLOCKS_{i};"] if "BLOCKS" in own else [] for i in others]
        leave = f"if (blockIdx.x >= {_found('unsigned', 'BLOCKS_0', blocks)}) return"
        text = base.text + "#undef ARGUMENTS\n#undef NUMBERS\n#undef GIVEN\n"
        text += f"#define ARGUMENTS {', '.join(sides[0] + sides[1])}\n#define NUMBERS {', '.join(scalars)}\n"
        return Code(base.file, f"{text}#define GIVEN {_found('Numbers', given, picks)}; {leave}\n")


def _found(kind: str, first: str, others: Sequence[Sequence[str]]) -> str:
    """The expression of a value of the block's member: ``first``, or as the statements of another one make it."""
    if not any(others):
        return f"{kind}{{{first}}}"
    picked = chosen("blockIdx.y", [(0, ""), *((i, " ".join(each)) for i, each in enumerate(others, 1))])
    return f"[&] {{ {kind} found{{{first}}}; {picked} return found; }}()"


@lowers("together", target="cuda")
def together(node: Node) -> list[Launch] | None:
    groups: dict[object, list[list[Launch]]] = {}
    results, blocks = iter(node.outputs), 0
    for member in members(node):
        own = _launches(member, tuple(next(results) for _ in member.types), blocks)
        if own is None:
            return None
        blocks += len({scratch for launch in own for scratch in launch.scratch})
        groups.setdefault(tuple(launch.code for launch in own), []).append(own)
    return [_joined(steps) for group in groups.values() for steps in zip(*group, strict=True)]


def _joined(launches: Sequence[Launch]) -> Launch:
    """One launch for those of several members with equal code."""
    reads = tuple(x for launch in launches for x in launch.reads)
    writes = tuple(x for launch in launches for x in launch.writes)
    return Launch(Stacked(tuple(launch.spec for launch in launches)), reads, writes)


def _launches(node: Node, results: tuple[Value, ...], scratch: int) -> list[Launch] | None:
    """The launches of a member, which write ``results`` and scratch memory from block ``scratch`` on; None for those
    that a pass does not put together."""
    if node.op.name == "row_order":
        return order_of(node, results, scratch)
    (rows, ids), [out] = node.input_types, node.types
    length = prod(ids.ints)
    if node.op.name == "gather_rows":
        types = as_signed(rows.dtype), as_signed(ids.dtype), as_signed(out.dtype)
        return [Launch(GatherTable(*types, length, rows.ints[0], prod(rows.ints[1:])), node.inputs, results)]
    if node.op.name == "scatter_rows_add":
        table = Rows(as_signed(rows.dtype), "sum", 1, length, int_attr(node.attrs, "count"), prod(out.ints[1:]))
        return [Launch(RowsFew(table, as_signed(ids.dtype)), node.inputs, results)]
    return None
