"""Jobs to compile and the compiler of each kind, identical in this process and in a worker.

The kind of a job is also the kind of its cache entries. A compiler is ``(symbol, spec, *options) -> bytes``; equal
arguments give equal bytes on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from dslc.base.cache_entry import Field
from dslc.compiler.ir.described import canonical
from dslc.compiler.toolchain.source_digest import digest_of
from dslc.compiler.toolchain.versions import toolchain

#: Kind -> module of the compiler and its function.
COMPILERS: Final[dict[str, tuple[str, str]]] = {
    "cpu_kernel": ("dslc.compiler.codegen.cpu.object.compile", "kernel_code"),
    "cuda_kernel": ("dslc.compiler.codegen.cuda.compile", "kernel_code"),
}
#: Kinds whose compilers need a process per job, and the preparation of their worker: see ``prepare``.
APART: Final[dict[str, tuple[str, str]]] = {"cuda_kernel": ("dslc.compiler.toolchain.prepare", "prepare")}
#: The folders whose sources determine the code for a description.
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
        """True if the code is reproducible only when compiled by a process that has not compiled anything before."""
        return self.kind in APART

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Everything that determines the code, for the cache key."""
        targets = self.options if self.kind == "cuda_kernel" else ("cpu",)
        versions = (f"{name} {version}" for name, version in sorted(toolchain(targets).items()))
        return (sources_digest(), *versions, str(len(self.options)), *self.options, self.symbol, canonical(self.spec))


@cache
def prepared(kind: str) -> str | None:
    """Prepares this process for jobs of a kind in APART. Returns why their code may not be reproducible, or None."""
    import_module(COMPILERS[kind][0])
    module, function = APART[kind]
    why = getattr(import_module(module), function)()
    assert why is None or isinstance(why, str)
    return why


def run_job(job: Job) -> bytes:
    """Compiles a kernel in this process and returns its code."""
    module, function = COMPILERS[job.kind]
    code = getattr(import_module(module), function)(job.symbol, job.spec, *job.options)
    assert isinstance(code, bytes), f"{function} gave no bytes"
    return code


@cache
def sources_digest() -> str:
    """SHA-256 of the sources of the code generators."""
    root = Path(__file__).resolve().parent.parent
    return digest_of(root / folder for folder in _FOLDERS)
