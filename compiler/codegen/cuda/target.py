"""An NVIDIA architecture as a target: two blobs per kernel, its cubin and its PTX."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dslc.compiler.codegen.cuda.chain.lower import is_faster, lower_chain
from dslc.compiler.codegen.cuda.chain.stages import Misfit, is_member
from dslc.compiler.codegen.cuda.compile import geometry
from dslc.compiler.codegen.cuda.libraries.registry import callable_library, chosen_call, library_call
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.outside import outside
from dslc.compiler.codegen.cuda.recurrent.lower import loops_at_once, resident, resident_seconds, why_not_resident
from dslc.compiler.codegen.cuda.variants import RESIDENT, lower_variant, variants
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.target import OTHERWISE, Geometry
from dslc.compiler.codegen.targets import traits_of
from dslc.compiler.ir.bodies.chain import chain
from dslc.compiler.ir.bodies.scans import scans
from dslc.compiler.ir.choice import OWN, Choice
from dslc.compiler.ir.graph import Attrs, Graph, Node
from dslc.compiler.ir.types import DType
from dslc.compiler.toolchain.bundle import unbundle
from dslc.compiler.toolchain.jobs import Job
from dslc.compiler.toolchain.kernel_compiler import KernelCompiler
from dslc.runtime.artifact.container import Blob
from dslc.runtime.artifact.reserved import check_symbol


class Cuda:
    """Implements ``Target``. Kernels name their cubin; the PTX is for GPUs newer than the cubin."""

    feature = "cuda"

    def __init__(self, architecture: str, vendor: bool = False) -> None:
        self.architecture = architecture
        self.vendor = vendor

    def lower(self, node: Node, choice: Choice | None = None) -> list[Launch] | None:
        if node.op is chain:
            return lower_chain(node)
        if node.op is scans:
            return resident(node)
        if choice is not None:
            return lower_variant(node, choice) if choice.provider == OWN else [chosen_call(node, choice)]
        call = library_call(node, self.architecture) if self.vendor else None
        return [call] if isinstance(call, Launch) else lower(node)

    def panel_attrs(self, node: Node, operand: int) -> Attrs | None:
        return None

    def library(self, node: Node) -> str | None:
        return callable_library(node)

    def why_no_library(self, node: Node) -> str | None:
        found = library_call(node, self.architecture)
        return OTHERWISE if isinstance(found, Launch) else found.why

    def variants(self, node: Node) -> tuple[str, ...]:
        return variants(node)

    def resident_loop(self, loop: Node) -> tuple[Choice, float] | None:
        """None also if blocks may not wait for one another, as they do after each step."""
        seconds = resident_seconds(loop) if traits_of(self.architecture).blocks_may_wait else None
        return None if seconds is None else (Choice(OWN, RESIDENT), seconds)

    def loops_at_once(self, loop: Node, way: Choice, count: int) -> int:
        return loops_at_once(loop, count) if way.algorithm == RESIDENT and why_not_resident(loop) is None else 1

    def may_chain(self, node: Node) -> bool:
        return is_member(node)

    def chain_length(self, body: Graph) -> int:
        try:
            return len(body.nodes) if is_faster(body) else 0
        except Misfit as misfit:
            return body.nodes.index(misfit.node)

    def geometry(self, spec: Any) -> Geometry:
        return geometry(spec)

    def input_checks(self, dtypes: Iterable[str]) -> Mapping[str, Any]:
        return {check_symbol(dtype): outside(DType(dtype)) for dtype in dtypes}

    def blob_of(self, symbol: str) -> str:
        return f"{symbol}.{self.architecture}.cubin"

    def blobs(self, kernels: Mapping[str, Any], compiler: KernelCompiler) -> list[Blob]:
        codes = compiler.compile([Job("cuda_kernel", s, spec, (self.architecture,)) for s, spec in kernels.items()])
        return [blob for symbol, code in sorted(zip(kernels, codes)) for blob in self.blobs_of(symbol, code)]

    def blobs_of(self, symbol: str, code: bytes) -> list[Blob]:
        """The blobs of a kernel from what its compiler returned."""
        parts = unbundle(code)
        return [
            Blob(self.blob_of(symbol), "cubin", parts["cubin"]),
            Blob(f"{symbol}.{self.architecture}.ptx", "ptx", parts["ptx"]),
        ]
