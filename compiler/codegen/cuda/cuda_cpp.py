"""Kernels in CUDA C++: a file of ``kernels/`` after a few lines that define its types, constants and scalar arguments.

Values that the compiler must know are constants. Sizes and strides are kernel arguments if that costs no speed, so that
one kernel serves many layers. A description has one of these bases:

- ``CppKernel``: all sizes are constants of the code. The shortest.
- ``Numbered``: sizes are arguments. The class lists them as ``Numbers``, and its ``code`` begins with their text.
- ``CodeWithArgs``: sizes are arguments, and only who writes the code knows which.
- ``SizeGeneric`` alone: the arguments are no ``Numbers``, but for instance those of several other descriptions.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, TypeAlias

from dslc.compiler.codegen.cuda.kernel_spec import Compiled, KernelCode, KernelSpec
from dslc.compiler.codegen.cuda.llvm.division import magic_of
from dslc.compiler.codegen.launch import ScalarArgs, SizeGeneric
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType

C_TYPES: Final = {
    DType.F64: "double",
    DType.F32: "float",
    DType.F16: "f16",
    DType.BF16: "bf16",
    DType.I64: "long long",
    DType.I32: "int",
    DType.I16: "short",
    DType.I8: "signed char",
    DType.U64: "unsigned long long",
    DType.U32: "unsigned",
    DType.U16: "unsigned short",
    DType.U8: "unsigned char",
    DType.B1: "bool",
}


@described("Code", "file text")
@dataclass(frozen=True, slots=True)
class Code(KernelCode):
    """A file of ``kernels/`` and the text before it: types, constants, scalar arguments and small functions."""

    file: str
    text: str

    def source(self, symbol: str) -> str:
        """The whole source that NVRTC compiles."""
        return "\n".join([f"#define KERNEL {symbol}", kernel_text("numbers.cuh"), self.text, kernel_text(self.file)])

    def compile(self, symbol: str, architecture: str) -> Compiled:
        from dslc.compiler.toolchain.nvrtc import compile_cuda

        return Compiled(*compile_cuda(self.source(symbol), architecture))


class CppKernel(KernelSpec):
    """A kernel with a ``Code``."""

    __slots__ = ()
    file: str  # the name of its file in ``kernels/``

    @abstractmethod
    def head(self) -> str:
        """The text before the file."""

    def compile(self, symbol: str, architecture: str) -> Compiled:
        return Code(self.file, self.head()).compile(symbol, architecture)


class Numbers:
    """The scalar arguments of a kernel after its pointers: members of ``const Numbers s``.

    A kernel has ``NUMBERS`` as its last parameters and begins with ``const Numbers s = GIVEN;``.
    """

    def __init__(self, **values: int) -> None:
        self._kinds: dict[str, str] = {}
        self._values: list[int | float] = []
        for name, value in values.items():
            self.add(name, value)

    def add(self, name: str, value: int | float, kind: str = "i32") -> str:
        """Adds a number and returns the expression that reads it; ``kind``: i32, i64, f32 or f64."""
        assert name not in self._kinds, f"duplicate scalar argument {name}"
        self._kinds[name] = kind
        self._values.append(value)
        return f"s.{name}"

    def divisor(self, name: str, size: int) -> tuple[str, str, str]:
        """The expressions of a size and of the magic number and shift with which ``quotient`` of numbers.cuh divides by
        it."""
        magic, shift = magic_of(size)
        return self.add(name, size), self.add(f"{name}_magic", magic), self.add(f"{name}_shift", shift)

    @property
    def names(self) -> tuple[str, ...]:
        """In order."""
        return tuple(self._kinds)

    @property
    def scalar_args(self) -> ScalarArgs:
        """Kinds and values, in order."""
        return tuple(zip(self._kinds.values(), self._values, strict=True))

    def text(self) -> str:
        listed = [f"{C_TYPES[DType(kind)]} {name}" for name, kind in self._kinds.items()]
        members = "".join(f"  {each};\n" for each in listed)
        names = ", ".join(self._kinds)
        return f"struct Numbers {{\n{members}}};\n#define NUMBERS {', '.join(listed)}\n#define GIVEN {{{names}}}\n"


class Numbered(SizeGeneric):
    """A launch whose scalar arguments are ``Numbers``."""

    @property
    @abstractmethod
    def numbers(self) -> Numbers:
        """The numbers, in the order of the kernel's parameters."""

    @property
    def scalar_args(self) -> ScalarArgs:
        return self.numbers.scalar_args


_INCLUDE: Final = re.compile(r'^#include "(\w+\.cuh)"\n', re.MULTILINE)


@cache
def kernel_files() -> dict[str, Traversable]:
    """The files in the folders of ``kernels/`` by their names. A name is part of symbols; its folder is not."""
    found: dict[str, Traversable] = {}
    for folder in (files("dslc.compiler.codegen.cuda") / "kernels").iterdir():
        assert folder.is_dir(), f"kernels/{folder.name}: move it to the folder of its kind"
        for file in folder.iterdir():
            assert file.name not in found, f"two files of kernels have the name {file.name}"
            found[file.name] = file
    return found


@cache
def kernel_text(name: str) -> str:
    """A file of ``kernels/`` with its includes expanded: lines ``#include "NAME"``, where NAME is in any folder."""
    text = kernel_files()[name].read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda found: kernel_text(found[1]), text)


#: Pointers of a kernel: the C type and the name of each.
Pointers: TypeAlias = tuple[tuple[str, str], ...]


def declared(pointers: Pointers, suffix: str = "") -> list[str]:
    """Parameters of a kernel; ``suffix`` is added to their names."""
    return [f"{type}{name}{suffix}" for type, name in pointers]


def arguments(*pointers: Pointers) -> str:
    """The line that defines ARGUMENTS, the pointers of a kernel."""
    return f"#define ARGUMENTS {', '.join(each for some in pointers for each in declared(some))}\n"


def constants(**values: int) -> str:
    """A line ``constexpr int NAME = VALUE;`` for each."""
    return "".join(f"constexpr int {name} = {value};\n" for name, value in values.items())


def chosen(number: str, cases: Sequence[tuple[int | str, str]]) -> str:
    """The statements of the last case whose first number is not above ``number``, found by bisection.

    Of a chain of ifs the compiler makes selections: then each warp loads the arguments of all cases, which takes longer
    than a copy of some KiB.
    """
    if len(cases) == 1:
        return cases[0][1]
    half = len(cases) // 2
    below, above = chosen(number, cases[:half]), chosen(number, cases[half:])
    return f"if ({number} < {cases[half][0]}) {{ {below} }} else {{ {above} }}"


def put(source: DType, target: DType) -> str:
    """The function ``put`` that stores a value of type T, ``source``, as S, ``target``: the same bits, or rounded."""
    body = "*to = x;" if source is target else "store(to, wide(x));"
    return f"__device__ __forceinline__ void put(S *to, T x) {{ {body} }}\n"


class CodeWithArgs(SizeGeneric):
    """A description whose code and scalar arguments are derived together."""

    @cached_property
    @abstractmethod
    def _code_and_args(self) -> tuple[Code, ScalarArgs]: ...

    @property
    def code(self) -> Code:
        return self._code_and_args[0]

    @property
    def scalar_args(self) -> ScalarArgs:
        return self._code_and_args[1]
