"""Random ops as kernels: ``Draw`` of ``codegen/random.py``, one draw of Philox a thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dslc.compiler.codegen import random
from dslc.compiler.codegen.cuda.cpp import C_TYPES, source_of
from dslc.compiler.codegen.cuda.units import Compiled, compiled, geometry
from dslc.compiler.codegen.random import Draw
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.types import DType

LOWERED = random.LOWERED
_THREADS: Final = 256
_MODES: Final = ("uniform", "normal", "dropout")


@dataclass(frozen=True)
class _Text:
    """A ``Draw`` as a ``CppKernel``."""

    draw: Draw
    file: str = "draw.cu"

    @property
    def geometry(self) -> Geometry:
        each = 8 if self.draw.kind == "dropout" else 4
        threads = self.draw.elements // each + 2  # the first and the last draw may reach beyond the tensor
        return Geometry((-(-threads // _THREADS), 1, 1), (_THREADS, 1, 1))

    def head(self) -> str:
        d = self.draw
        wide = C_TYPES[d.dtype.computed]
        suffix = "" if d.dtype.computed is DType.F64 else "f"
        text = f"#define MODE {_MODES.index(d.kind)}\n#define STEPPED {int(d.stepped)}\nusing T = {C_TYPES[d.dtype]};\n"
        sizes = {"KEY": d.key, "ELEMENTS": d.elements, "ROW_ELEMENTS": d.row_elements}
        text += "".join(f"constexpr unsigned long long {name} = {size}ull;\n" for name, size in sizes.items())
        text += f"__device__ __forceinline__ void put(T *to, float x) {{ store(to, ({wide})x); }}\n"
        if d.kind == "dropout":
            return (
                text + f"constexpr unsigned LEAST = {int(d.low)}u;\nconstexpr {wide} SCALE = {d.high.hex()}{suffix};\n"
            )
        return text + f"constexpr float LOW = {d.low.hex()}f, HIGH = {d.high.hex()}f;\n"


@geometry.register
def _(spec: Draw) -> Geometry:
    return _Text(spec).geometry


@compiled.register
def _(spec: Draw, symbol: str, architecture: str) -> Compiled:
    from dslc.compiler.toolchain.nvrtc import compile_cuda

    return Compiled(*compile_cuda(source_of(_Text(spec), symbol), architecture))
