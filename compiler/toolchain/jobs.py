"""What is to be compiled, and by which function: the same in this process and in a worker.

A kind of job names its entries in the cache, too. A compiler is ``(symbol, spec, *options) -> bytes``; equal arguments
give equal bytes, on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from dslc.base.cache_entry import Field
from dslc.compiler.ir.described import canonical
from dslc.compiler.toolchain.sources import digest_of
from dslc.compiler.toolchain.versions import toolchain

#: Kind -> module of the compiler, its function, and modules whose import makes all descriptions known to it.
COMPILERS: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "cpu_kernel": ("dslc.compiler.codegen.cpu.objects", "kernel_code", ("dslc.compiler.codegen.lower",)),
    "cuda_kernel": ("dslc.compiler.codegen.cuda.units", "kernel_code", ("dslc.compiler.codegen.cuda.lower",)),
}
#: Kinds whose compilers want a process for each job, and what their worker does before: see ``prepare``.
APART: Final[dict[str, tuple[str, str]]] = {"cuda_kernel": ("dslc.compiler.toolchain.prepare", "prepare")}
#: The folders whose sources decide what code is made of a description.
_FOLDERS: Final = ("codegen", "ir", "ops", "toolchain")


@dataclass(frozen=True, eq=False)
class Job:
    """One kernel to compile. ``spec`` is data whose ``canonical`` text says all; ``options`` go to the compiler."""

    kind: str
    symbol: str
    spec: Any
    options: tuple[str, ...] = ()

    @property
    def apart(self) -> bool:
        """Whether its code is the same at all times only when a process that has compiled nothing compiles it."""
        return self.kind in APART

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """All that decides the code, for the cache."""
        targets = self.options if self.kind == "cuda_kernel" else ("cpu",)
        versions = (f"{name} {version}" for name, version in sorted(toolchain(targets).items()))
        return (sources_digest(), *versions, str(len(self.options)), *self.options, self.symbol, canonical(self.spec))


@cache
def prepared(kind: str) -> str | None:
    """Makes this process ready for jobs of a kind in APART. Why their code may be another one another time, or None."""
    for name in COMPILERS[kind][2]:
        import_module(name)
    module, function = APART[kind]
    why = getattr(import_module(module), function)()
    assert why is None or isinstance(why, str)
    return why


def run_job(job: Job) -> bytes:
    """The code of a kernel, compiled here."""
    module, function, known = COMPILERS[job.kind]
    for name in known:
        import_module(name)
    code = getattr(import_module(module), function)(job.symbol, job.spec, *job.options)
    assert isinstance(code, bytes), f"{function} gave no bytes"
    return code


@cache
def sources_digest() -> str:
    """SHA-256 over the sources of the code generators."""
    root = Path(__file__).resolve().parent.parent
    return digest_of(root / folder for folder in _FOLDERS)
