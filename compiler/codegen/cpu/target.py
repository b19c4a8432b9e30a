"""The CPU as a target: one object per level of the instruction set, for all levels or one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dslc.compiler.codegen.cpu.contraction.lower import layout_of
from dslc.compiler.codegen.cpu.kernel_spec import tasks_of
from dslc.compiler.codegen.cpu.levels import ALL, levels_of
from dslc.compiler.codegen.cpu.lower import lower
from dslc.compiler.codegen.cpu.object.elf_merge import merge
from dslc.compiler.codegen.cpu.object.thread_driver import DRIVER
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.choice import OWN, Choice, impossible
from dslc.compiler.ir.graph import Attrs, Graph, Node
from dslc.compiler.toolchain.bundle import unbundle
from dslc.compiler.toolchain.jobs import Job
from dslc.compiler.toolchain.kernel_compiler import KernelCompiler
from dslc.runtime.artifact.container import Blob

#: Prefix of an artifact's objects, one per level. Kernels name the first of the artifact; the runtime loads that of its
#: machine.
CODE: Final = "code."


class Cpu:
    """Implements ``Target``. ``level``: the only level of its objects, or ``ALL``."""

    feature = "native"

    def __init__(self, level: str = ALL) -> None:
        self._levels = levels_of(level)
        self._options = () if level == ALL else (level,)

    def lower(self, node: Node, choice: Choice | None = None) -> list[Launch] | None:
        if choice not in (None, Choice(OWN)):
            raise impossible(node, choice, "the CPU's kernels have no variants")
        return lower(node)

    def variants(self, node: Node) -> tuple[str, ...]:
        return () if lower(node) is None else ("",)

    def panel_attrs(self, node: Node, operand: int) -> Attrs | None:
        return layout_of(node, operand)

    def library(self, node: Node) -> str | None:
        return None

    def why_no_library(self, node: Node) -> str | None:
        return None

    def resident_loop(self, loop: Node) -> tuple[Choice, float] | None:
        return None

    def loops_at_once(self, loop: Node, way: Choice, count: int) -> int:
        return 1

    def may_chain(self, node: Node) -> bool:
        return False

    def chain_length(self, body: Graph) -> int:
        return 0

    def geometry(self, spec: Any) -> Geometry:
        return Geometry((tasks_of(spec), 1, 1))

    def input_checks(self, dtypes: Iterable[str]) -> Mapping[str, Any]:
        return {}

    def blob_of(self, symbol: str) -> str:
        return CODE + self._levels[0]

    def blobs(self, kernels: Mapping[str, Any], compiler: KernelCompiler) -> list[Blob]:
        specs = {DRIVER: None, **{symbol: kernels[symbol] for symbol in sorted(kernels)}}
        jobs = [Job("cpu_kernel", symbol, spec, self._options) for symbol, spec in specs.items()]
        codes = [unbundle(code) for code in compiler.compile(jobs)]
        return [Blob(CODE + level, "object", merge([code[level] for code in codes])) for level in self._levels]
