"""The text of a left factor that each block computes for itself: rows of a region, e.g. of a normalisation.

A thread has every THREADS-th element of each row. Values are f32 and are rounded to the factor's dtype at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dslc.compiler.codegen.cuda.chain.stages import THREADS
from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, constants
from dslc.compiler.codegen.cuda.recurrent.formulas import formula
from dslc.compiler.codegen.region.ir import Access, Let, Region, Stage
from dslc.compiler.ir.types import DType

_HOW = {"sum": "Sum", "max": "Largest", "min": "Least"}
_ROW = "#pragma unroll\n    for (int r = 0; r < R; ++r)"
_ELEMENT = f"{_ROW}\n#pragma unroll\n      for (int e = 0; e < E; ++e)"


def left_text(region: Region, rows: int, inner: int, outer: Sequence[bool]) -> str:
    """``struct Left`` of a region of that many rows of ``inner`` elements. ``outer``: which inputs exist before the
    chain."""
    text = constants(R=rows, E=-(-inner // THREADS), INNER=inner)
    members = "".join(f"  const {C_TYPES[a.dtype]} *l{n};\n" for n, a in enumerate(region.inputs))
    members += "".join(f"  {_kind(a.dtype)} v{n}[R]{'[E]' * _moves(a)};\n" for n, a in enumerate(region.inputs))
    loads = [_load(n, a, region) for n, a in enumerate(region.inputs)]
    early = "".join(load for load, there in zip(loads, outer, strict=True) if there)
    late = "".join(load for load, there in zip(loads, outer, strict=True) if not there)
    body, names, number = "", _input_names(region), region.first
    for stage in region.stages:
        text_of, number = _stage(stage, names, number)
        body += text_of
    head = "struct Left {\n" + members + "  __device__ __forceinline__ void early() {\n" + early + "  }\n"
    kind = C_TYPES[region.outputs[0].dtype]
    head += f"  __device__ __forceinline__ const {kind} *get() {{\n"
    head += f"    {kind} *const to = reinterpret_cast<{kind} *>(memory);\n    __shared__ float held[R][WARPS];\n"
    return f"{text}{head}{late}{body}    __syncthreads();\n    return to;\n  }}\n}};\n"


def _kind(dtype: DType) -> str:
    return "bool" if dtype is DType.B1 else "float"


def _moves(access: Access) -> bool:
    return access.strides[-1] != 0


def _input_names(region: Region) -> list[str]:
    names = [f"v{n}[r]{'[e]' * _moves(a)}" for n, a in enumerate(region.inputs)]
    return names + [""] * (region.first - len(names))


def _load(n: int, access: Access, region: Region) -> str:
    """Reads an input's elements of this thread; 0 for those that do not exist."""
    terms = [
        f"r / {prod(region.outer[axis + 1 :])} % {region.outer[axis]} * {stride}"
        for axis, stride in enumerate(access.strides[:-1])
        if stride
    ]
    row = " + ".join([str(access.offset), *terms])
    value = f"l{n}[{row}]"
    if _moves(access):
        value = f"l{n}[{row} + (e * THREADS + threadIdx.x) * {access.strides[-1]}]"
    wide = value if access.dtype is DType.B1 else f"wide({value})"
    if not _moves(access):
        return f"{_ROW} v{n}[r] = {wide};\n"
    nothing = "false" if access.dtype is DType.B1 else "0.0f"
    return f"{_ELEMENT} v{n}[r][e] = e * THREADS + threadIdx.x < INNER ? {wide} : {nothing};\n"


def _stage(stage: Stage, names: list[str], number: int) -> tuple[str, int]:
    """The text of a stage, whose values get names, and the number of the next value."""
    stores = [store for store in stage.stores if store.output == 0]
    if stage.element and not stage.reduces and not stores:
        names += [""] * len(stage.lets)
        return "", number + len(stage.lets)
    lines, declared = "", ""
    for let in stage.lets:
        assert isinstance(let, Let)
        value = formula(let.expr, names)
        if stage.element:
            lines += f"        const {_kind(let.dtype)} v{number} = {value};\n"
            names.append(f"v{number}")
        else:
            declared += f"    {_kind(let.dtype)} v{number}[R];\n"
            lines += f"      v{number}[r] = {value};\n"
            names.append(f"v{number}[r]")
        number += 1
    if not stage.element:
        return (f"{declared}{_ROW} {{\n{lines}    }}\n" if lines else ""), number
    after, own = "", "e * THREADS + threadIdx.x"
    for reduce in stage.reduces:
        how = _HOW[reduce.combine]
        declared += f"    float v{number}[R];\n{_ROW} v{number}[r] = {how}::none();\n"
        lines += f"        if ({own} < INNER) v{number}[r] = {how}::of(v{number}[r], {names[reduce.value]});\n"
        after += f"    combine<{how}>(v{number}, held);\n"
        names.append(f"v{number}[r]")
        number += 1
    for store in stores:
        lines += f"        if ({own} < INNER) store(to + (r * INNER + {own}), {names[store.value]});\n"
    return f"{declared}{_ELEMENT} {{\n{lines}      }}\n{after}", number
