"""``together``: gathers from several tables, or scatters to them, in one launch for all of those with equal code."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final, Protocol

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbered, Numbers, constants, put
from dslc.compiler.codegen.cuda.hardware import LOAD_BYTES
from dslc.compiler.codegen.cuda.ops.scatter.row_order import as_signed
from dslc.compiler.codegen.cuda.ops.scatter.scatter_rows import Rows, RowsFew
from dslc.compiler.codegen.cuda.region.writer import power_of_two
from dslc.compiler.codegen.launch import Launch, ScalarArgs, SizeGeneric
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.compound.together import members

_BLOCK_THREADS: Final = 256


class Member(Protocol):
    """A kernel ``k(rows, ids, ARGUMENT_X y, NUMBERS)`` of a grid of one axis, which begins with its numbers."""

    @property
    def result(self) -> DType: ...
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

    @property
    def vector(self) -> int:
        """Elements of a thread."""
        return min(LOAD_BYTES // max(self.table.itemsize, self.result.itemsize), power_of_two(self.inner))

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-self.length * self.inner // (self.vector * _BLOCK_THREADS)), 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def numbers(self) -> Numbers:
        return Numbers(LENGTH=self.length, COUNT=self.count, INNER=self.inner)

    @property
    def code(self) -> Code:
        names = {"T": C_TYPES[self.table], "I": C_TYPES[self.ids], "S": C_TYPES[self.result]}
        text = "".join(f"using {name} = {type};\n" for name, type in names.items())
        text += self.numbers.text() + constants(THREADS=_BLOCK_THREADS, VEC=self.vector) + "#define ARGUMENT_X\n"
        missing = "store(to, __uint_as_float(0x7FC00000u));" if self.result.is_float else "*to = 0;"
        text += put(self.table, self.result)
        return Code("gather_tables.cu", f"{text}__device__ __forceinline__ void missing(S *to) {{ {missing} }}\n")


@dataclass(frozen=True)
class Stacked(SizeGeneric):
    """``k(rows, ids, rows1, ids1, ..., y, y1, ..., numbers)``: kernels with equal code in one launch. The second
    index of a block says to which member it belongs; blocks that a member does not have return at once."""

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
        base, numbers = self.members[0].code, self._numbers
        own = C_TYPES[self.members[0].result]
        others = range(1, len(self.members))
        reads = "".join(f"const T *__restrict__ rows{i}, const I *__restrict__ ids{i}, " for i in others)
        listed = [f"{own} *__restrict__ y{i}" for i in others]
        listed += [f"int {name}_{i}" for name, values in numbers.items() for i in range(len(values))]
        given = ", ".join(_chosen(name, len(values)) for name, values in numbers.items() if name != "BLOCKS")
        picks = " ".join(f"if (blockIdx.y == {i}) {{ rows = rows{i}; ids = ids{i}; y = y{i}; }}" for i in others)
        leave = f"if (blockIdx.x >= {_chosen('BLOCKS', len(numbers['BLOCKS']))}) return;"
        text = base.text + "#undef ARGUMENT_X\n#undef NUMBERS\n#undef GIVEN\n"
        text += f"#define ARGUMENT_X {reads}\n#define NUMBERS {', '.join(listed)}\n"
        return Code(base.file, f"{text}#define GIVEN {{{given}}}; {leave} {picks}\n")


def _chosen(name: str, count: int) -> str:
    """The expression of a number of the block's member."""
    found = f"{name}_{count - 1}"
    for i in reversed(range(count - 1)):
        found = f"blockIdx.y == {i} ? {name}_{i} : {found}"
    return f"({found})"


@lowers("together", target="cuda")
def together(node: Node) -> list[Launch] | None:
    groups: dict[Code, list[tuple[Member, int]]] = {}
    parts = members(node)
    for number, part in enumerate(parts):
        spec = _spec(part)
        if spec is None:
            return None
        groups.setdefault(spec.code, []).append((spec, number))
    launches = []
    for group in groups.values():
        reads = tuple(v for _, number in group for v in parts[number].inputs)
        stacked = Stacked(tuple(spec for spec, _ in group))
        launches.append(Launch(stacked, reads, tuple(node.outputs[number] for _, number in group)))
    return launches


def _spec(node: Node) -> Member | None:
    """The kernel of a member; None for those that a pass does not put together."""
    (rows, ids), out = node.input_types, node.types[0]
    length = prod(ids.ints)
    if node.op.name == "gather_rows":
        types = as_signed(rows.dtype), as_signed(ids.dtype), as_signed(out.dtype)
        return GatherTable(*types, length, rows.ints[0], prod(rows.ints[1:]))
    if node.op.name == "scatter_rows_add":
        table = Rows(as_signed(rows.dtype), "sum", 1, length, int_attr(node.attrs, "count"), prod(out.ints[1:]))
        return RowsFew(table, as_signed(ids.dtype))
    return None
