"""Numba-CUDA: the text of a kernel to PTX, the same bytes in any process and on any machine; no GPU is needed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from dslc.compiler.codegen.cuda.source import Source

#: Constructors for a text's constants; Python has no literals of these types.
_CONSTANTS = {
    "f32": lambda text: np.float32(float.fromhex(text)),
    "f64": lambda text: np.float64(float.fromhex(text)),
    "i64": np.int64,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
    "u8": np.uint8,
}
_COMMENT = re.compile(r"//[^\n]*")
_ENVIRONMENT = re.compile(r"^\.common \.global [^\n]*_ZN08NumbaEnv[^\n]*\n", re.MULTILINE)
_ENTRY = re.compile(r"\.visible \.entry (\w+)\(")


def namespace(source: Source, functions: Any) -> dict[str, Any]:
    """What the text may name: its constants' constructors and its functions. No builtins but ``range``."""
    return {**_CONSTANTS, **{c.name: functions(c) for c in source.calls}, "__builtins__": {"range": range}}


def function_of(source: Source, functions: Any) -> Any:
    """The Python function that the text defines, over ``functions(call)``."""
    names = namespace(source, functions)
    code = compile(source.text, source.name, "exec", dont_inherit=True)
    exec(code, names)  # noqa: S102 - Numba compiles functions; the text is made of our templates, names and numbers
    return names[source.name]


def ptx_of(source: Source, architecture: str) -> bytes:
    """The kernel's PTX, its entry named as the source, for an architecture as ``sm_90``."""
    from numba.cuda import types
    from numba.cuda.compiler import compile as compile_function

    from dslc.compiler.codegen.cuda import lanes, library

    number = int(architecture.removeprefix("sm_"))
    numbers = [lanes.type_of(dtype, 1) for dtype in source.numbers]
    signature = types.void(*[lanes.POINTER] * source.arguments, *numbers)
    text, _ = compile_function(
        function_of(source, library.function_of),
        signature,
        cc=divmod(number, 10),
        device=False,
        abi="numba",
        output="ptx",
        launch_bounds=(source.threads, source.resident) if source.resident > 1 else source.threads,
    )
    return _clean(text, source.name).encode("ascii")


def _clean(text: str, name: str) -> str:
    """Without what a process counts: Numba's numbered names, its environment record, comments."""
    text = _ENVIRONMENT.sub("", text.replace("\r", ""))
    [entry] = _ENTRY.findall(text)
    text = _COMMENT.sub("", text.replace(entry, name))
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip()) + "\n"
