"""Random ops as kernels: ``Draw`` of ``codegen/region/random.py``, one Philox draw per thread; orthogonal matrices."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, CppKernel, Numbered, Numbers, constants
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.random import Draw
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import float_attr, int_attr
from dslc.compiler.ops.random.orthogonal import LEAST, TINY

_BLOCK_THREADS: Final = 256
_ORTHOGONAL_THREADS: Final = 1024  # 32 warps: as many partial sums as one warp combines
_MODES: Final = ("uniform", "normal", "dropout")


@dataclass(frozen=True)
class DrawKernel(Numbered):
    """The kernel of a ``Draw``, with its numbers as scalar arguments."""

    draw: Draw

    @property
    def geometry(self) -> Geometry:
        each = 8 if self.draw.kind == "dropout" else 4
        threads = self.draw.elements // each + 2  # the first and the last draw may extend beyond the tensor
        return Geometry((-(-threads // _BLOCK_THREADS), 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def numbers(self) -> Numbers:
        d = self.draw
        numbers = Numbers()
        for name, value in (("KEY", d.key), ("ELEMENTS", d.elements), ("ROW_ELEMENTS", d.row_elements)):
            numbers.add(name, value - (1 << 64) if value >> 63 else value, "i64")
        if d.kind == "dropout":
            numbers.add("LEAST", int(d.low))
            numbers.add("SCALE", d.high, d.dtype.computed.value)
        else:
            numbers.add("LOW", d.low, "f32")
            numbers.add("HIGH", d.high, "f32")
        return numbers

    @property
    def code(self) -> Code:
        d = self.draw
        text = f"#define MODE {_MODES.index(d.kind)}\n#define STEPPED {int(d.stepped)}\n"
        text += f"using T = {C_TYPES[d.dtype]};\nusing WIDE = {C_TYPES[d.dtype.computed]};\n"
        return Code("draw.cu", text + self.numbers.text())


@described("Orthogonal", "dtype rows columns gain file")
@dataclass(frozen=True)
class Orthogonal(CppKernel):
    """``k(x, y, vectors)``: orthonormalises the rows of an f32 matrix ``[rows, columns]``, or its columns if there are
    fewer, and multiplies by ``gain``. One block: a matrix is made once, when training starts."""

    dtype: DType
    rows: int
    columns: int
    gain: float
    file: str = "orthogonal.cu"

    @property
    def geometry(self) -> Geometry:
        return Geometry((1, 1, 1), (_ORTHOGONAL_THREADS, 1, 1))

    def head(self) -> str:
        text = f"using T = {C_TYPES[self.dtype]};\n"
        text += f"constexpr double GAIN = {self.gain!r}, TINY = {TINY!r}, LEAST = {LEAST!r};\n"
        short, long = sorted((self.rows, self.columns))
        return text + constants(THREADS=_ORTHOGONAL_THREADS, N=short, M=long, WIDE=int(self.rows < self.columns))


@lowers("init_orthogonal", target="cuda")
def init_orthogonal(node: Node) -> list[Launch]:
    """Standard normal numbers, then one block that orthonormalises them in f64."""
    [type] = node.types
    elements, rows = prod(type.ints), type.ints[0]
    drawn, vectors = Scratch(0, elements * DType.F32.itemsize), Scratch(1, elements * DType.F64.itemsize)
    draw = Draw("normal", DType.F32, elements, int_attr(node.attrs, "key"), False, 0, 0.0, 1.0)
    spec = Orthogonal(type.dtype, rows, elements // rows, float_attr(node.attrs, "gain"))
    return [
        Launch(draw, node.inputs[:1], (drawn,)),
        Launch(spec, (drawn,), (node.out, vectors)),
    ]
