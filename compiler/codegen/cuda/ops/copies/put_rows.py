"""The op put_rows as a GPU kernel, which copies a table only if it is not written in place."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, CppKernel, constants
from dslc.compiler.codegen.cuda.hardware import LOAD_BYTES
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.compound.strided_attention import reads_of

_THREADS: Final = 256
_MOST_BLOCKS: Final = 64  # of a table that is copied; in place, all but a few return at once


@described("PutRows", "dtype source ids table put views file")
@dataclass(frozen=True)
class PutRowsKernel(CppKernel):
    """``k(tables..., sources..., ids, results...)``: ``put`` rows of each source into its table, of shape ``table``.

    ``views``: of each source the rows, as (shape, strides, start); their strides are the same.
    """

    dtype: DType
    source: DType
    ids: DType
    table: tuple[int, ...]
    put: int
    views: tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...]
    file: str = "put_rows.cu"

    @property
    def width(self) -> int:
        return prod(self.table[1:])

    @property
    def vector(self) -> int:
        """Neighbours of a thread, which are neighbours in the table and in the source."""
        shape, strides, _ = self.views[0]
        if len(shape) == 1 or strides[-1] != 1:
            return 1
        most = LOAD_BYTES // max(self.dtype.itemsize, self.source.itemsize)
        others = [stride for size, stride in zip(shape[:-1], strides) if size > 1]
        return gcd(most, shape[-1], *others, *(start for _, _, start in self.views))

    @property
    def geometry(self) -> Geometry:
        copied, put = (-(-rows * self.width // self.vector // _THREADS) for rows in (self.table[0], self.put))
        return Geometry((max(1, put, min(copied, _MOST_BLOCKS)), len(self.views), 1), (_THREADS, 1, 1))

    def head(self) -> str:
        count = len(self.views)
        text = self._types
        for name, declared in (("TABLES", "const X *x"), ("SOURCES", "const S *__restrict__ src"), ("RESULTS", "X *y")):
            text += f"#define {name} {', '.join(f'{declared}{number}' for number in range(count))}\n"
        each = [f"if (blockIdx.y == {n}) written(x{n}, src{n} + {start}, ids, y{n});" for n, (_, _, start) in
                enumerate(self.views)]  # fmt: skip
        return f"{text}{self._places}#define WRITE {' '.join(each)}\n{self._functions(_THREADS)}"

    def words(self, threads: int) -> str:
        """What ``put_rows.cuh`` is about, in a kernel with that many threads in a block."""
        return self._types + self._places + self._functions(threads)

    @property
    def _types(self) -> str:
        return f"using X = {C_TYPES[self.dtype]};\nusing S = {C_TYPES[self.source]};\nusing ID = {C_TYPES[self.ids]};\n"

    @property
    def _axes(self) -> list[tuple[int, int]]:
        """Sizes and strides of the axes of a source's row."""
        shape, strides, _ = self.views[0]
        return list(zip(shape[1:], strides[1:])) or [(1, 0)]

    @property
    def _places(self) -> str:
        """Where rows of a source lie."""
        sizes, steps = zip(*self._axes)
        return f"#define SIZES {', '.join(map(str, sizes))}\n#define STEPS {', '.join(map(str, steps))}\n"

    def _functions(self, threads: int) -> str:
        _, strides, _ = self.views[0]
        text = constants(
            THREADS=threads, VEC=self.vector, ROWS=self.table[0], WIDTH=self.width, PUT=self.put,
            RANK=len(self._axes), ROW_STEP=strides[0], FLOATS=int(self.dtype.is_float),
        )  # fmt: skip
        same = self.dtype is self.source
        text += "__device__ __forceinline__ void put(X *to, S x) { " + ("*to = x;" if same else "store(to, wide(x));")
        nan = "store(to, __uint_as_float(0x7FC00000u));" if self.dtype.is_float else ""
        return f"{text} }}\n__device__ __forceinline__ void missing(X *to) {{ {nan} }}\n"


@lowers("put_rows", target="cuda")
def put_rows(node: Node) -> list[Launch] | None:
    count = len(node.outputs)
    tables, sources, ids = node.inputs[:count], node.inputs[count:-1], node.inputs[-1]
    views, x, src = reads_of(node.attrs), tables[0].type, sources[0].type
    if len({source.type.dtype for source in sources}) > 1 or len({view.strides for view in views}) > 1:
        return None
    if not prod(x.ints):
        return []
    spec = PutRowsKernel(
        x.dtype,
        src.dtype,
        ids.type.dtype,
        x.ints,
        ids.type.ints[0],
        tuple((view.shape, view.strides, view.start) for view in views),
    )
    return [Launch(spec, node.inputs, node.outputs)]
