"""The CPU as a target: one object a level of the instruction set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dslc.compiler.codegen import lower as lowering
from dslc.compiler.codegen.cpu.objects import LEVELS, object_of, tasks
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node
from dslc.runtime.container import Blob

#: The objects of an artifact, one a level; kernels name the first, the runtime takes the one of its machine.
CODE: Final = "code."


class Cpu:
    """As ``Target`` says."""

    feature = "native"

    def lower(self, node: Node) -> list[Launch] | None:
        return lowering.lower(node)

    def geometry(self, spec: Any) -> Geometry:
        return Geometry((tasks(spec), 1, 1))

    def blob_of(self, symbol: str) -> str:
        return CODE + next(iter(LEVELS))

    def blobs(self, kernels: Mapping[str, Any]) -> list[Blob]:
        return [Blob(CODE + level, "object", object_of(kernels, level)) for level in LEVELS]
