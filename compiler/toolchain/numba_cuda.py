"""Numba-CUDA: compiles a kernel's source to PTX, the same bytes in any process and on any machine, without a GPU."""

from __future__ import annotations

import re
from typing import Any, Final

from dslc.compiler.codegen.cuda.region.source import Source
from dslc.compiler.ir.types import DType

_WAITS_FROM: Final = 90  # the first architecture that can launch a kernel before the preceding kernels have ended
_COMMENT = re.compile(r"//[^\n]*")
_ENVIRONMENT = re.compile(r"^\.common \.global [^\n]*_ZN08NumbaEnv[^\n]*\n", re.MULTILINE)
_ENTRY = re.compile(r"\.visible \.entry (\w+)\(")


def ptx_of(source: Source, architecture: str) -> bytes:
    """The kernel's PTX for an architecture such as ``sm_90``; its entry has the source's name."""
    from numba.cuda import types
    from numba.cuda.compiler import compile as compile_function

    number = int(architecture.removeprefix("sm_"))
    kinds = {DType.I32: types.int32, DType.I64: types.int64}
    pointers = [types.CPointer(types.uint8)] * source.arguments
    text, _ = compile_function(
        _function_of(source),
        types.void(types.StarArgTuple.from_types((*pointers, *(kinds[dtype] for dtype in source.numbers)))),
        cc=divmod(number, 10),
        device=False,
        abi="numba",
        output="ptx",
        launch_bounds=(source.threads, source.resident) if source.resident > 1 else source.threads,
    )
    text = _clean(text, source.name)
    return (waiting(text) if number >= _WAITS_FROM else text).encode("ascii")


def for_blocks(ptx: bytes, old: int, new: int) -> bytes:
    """The PTX of a kernel whose multiprocessor must have room for ``new`` blocks instead of ``old``."""
    before, after = (f".minnctapersm {blocks}\n".encode() for blocks in (old, new))
    assert ptx.count(before) == 1, "the PTX states its blocks once"
    return ptx.replace(before, after)


def waiting(text: str) -> str:
    """PTX whose entry first waits for the preceding kernels, so that the device may launch it while they end."""
    body = text.index("\n{\n", text.index(".entry")) + 3
    while text.startswith(("\t.", "."), body):  # declarations
        body = text.index("\n", body) + 1
    return f"{text[:body]}\tgriddepcontrol.wait;\n{text[body:]}"


def _function_of(source: Source) -> Any:
    """The kernel as a function for Numba: it passes its arguments to one intrinsic, which contains the whole source.

    Numba takes one or two milliseconds for each call of a compiled function, and a source has dozens of calls.
    """
    from numba.cuda import types
    from numba.cuda.extending import intrinsic
    from numba.cuda.typing import signature

    from dslc.compiler.codegen.cuda.llvm.body import write_body

    @intrinsic  # type: ignore[untyped-decorator]
    def body(context: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            write_body(source, builder)
            return context.get_dummy_value()

        return signature(types.none), generate

    def kernel(*arguments: Any) -> None:
        body()

    return kernel


def _clean(text: str, name: str) -> str:
    """Removes text that depends on the process: Numba's numbered names, its environment record, comments."""
    text = _ENVIRONMENT.sub("", text.replace("\r", ""))
    [entry] = _ENTRY.findall(text)
    text = _COMMENT.sub("", text.replace(entry, name))
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip()) + "\n"
