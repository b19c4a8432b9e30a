"""The target interface: kernels for nodes, their launch geometry, and their code as blobs.

A target's name is that of ``--target``: ``cpu``, or an NVIDIA architecture such as ``sm_90``. Code depends only on
descriptions, so any machine can build for any target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.choice import Choice
from dslc.compiler.ir.graph import Attrs, Graph, Node
from dslc.runtime.artifact.container import Blob
from dslc.runtime.artifact.instructions import Instruction

if TYPE_CHECKING:
    from dslc.compiler.toolchain.kernel_compiler import KernelCompiler

#: Why own kernels run a node that a library computes, too: their time was measured, or the build asks for them.
OTHERWISE: Final = "measured"


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a kernel is launched. On the CPU ``grid[0]`` is its number of tasks and the rest is 1."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties of a target that passes ask for; passes do not know targets by name.

    ``compute_dtypes``, ``param_dtypes``: the names of the dtypes in which it computes and keeps parameters.
    ``has_reference``: nodes without a kernel run through their numpy reference implementation. ``has_libraries``: the
    vendor's libraries can compute contractions. ``has_device_memory``: programs work in memory of their own, not the
    host's. ``has_half_kernels``: it has kernels for all ops on 16-bit floats. ``has_streams``: it runs several nodes at
    once if their streams say so. ``has_tensor_cores``: 16-bit convolutions are fast if channels are last.
    ``fuses_reductions``: its kernels combine reductions, random draws and several results with pointwise ops.
    ``reads_slices``: its pointwise
    kernels read parts of tensors in place. ``reads_any_layout``: its kernels of ops on images take channels last as
    fast as channels first; ``reads_images_last``: those of pools and resampling do. ``has_transforms``: it has kernels
    of whole Fourier transforms. ``launches_are_costly``: a launch takes longer than the work on a small tensor.
    ``blocks_may_wait``: as many blocks as the device model has multiprocessors are on the GPU at once, also on the
    smallest GPU that runs the target's code. So blocks may wait for one another, and one kernel can compute nodes that
    follow one another, or all steps of a loop.
    """

    compute_dtypes: tuple[str, ...]
    param_dtypes: tuple[str, ...]
    has_reference: bool = False
    has_libraries: bool = False
    has_device_memory: bool = False
    has_half_kernels: bool = False
    has_streams: bool = False
    has_tensor_cores: bool = False
    fuses_reductions: bool = False
    reads_slices: bool = False
    reads_any_layout: bool = False
    reads_images_last: bool = False
    launches_are_costly: bool = False
    has_transforms: bool = False
    blocks_may_wait: bool = False


@runtime_checkable
class LibraryCall(Protocol):
    """The description of a launch that calls a library instead of a kernel; its last argument is the workspace."""

    @property
    def library(self) -> str:
        """The library's name in instructions."""

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the operands and, last, of the result, as passed to the library."""

    def instruction(self, operands: Sequence[int], workspace: int, where: int) -> Instruction:
        """The call on buffers of a plan."""


class Target(Protocol):
    """A target's code generation. ``feature`` tells the runtime what it needs to run the code."""

    feature: str

    def lower(self, node: Node, choice: Choice | None = None) -> list[Launch] | None:
        """The launches that compute a node whose sizes are ints, in order; None if it has no kernel.

        ``choice``: how; None for the rules of the target. BuildError E0609 if the node cannot be computed that way.
        """

    def variants(self, node: Node) -> tuple[str, ...]:
        """The names of the ways in which own kernels can compute a node, the default's empty one first; empty if the
        node has no kernel. Only sums may differ between them, by their order."""

    def panel_attrs(self, node: Node, operand: int) -> Attrs | None:
        """The attributes of the op ``panels`` by which the kernels of a product first copy an operand; None if they
        read it in place."""

    def library(self, node: Node) -> str | None:
        """The name of the library that can compute a node, whether or not ``lower`` calls it without a choice."""

    def why_no_library(self, node: Node) -> str | None:
        """Why a node that a library is for runs as own kernels, ``OTHERWISE`` if the library computes it and they were
        chosen; None for others."""

    def resident_loop(self, loop: Node) -> tuple[Choice, float] | None:
        """How one kernel computes all steps of a loop, and its modelled seconds; None if none can."""

    def loops_at_once(self, loop: Node, way: Choice, count: int) -> int:
        """How many of ``count`` loops like one, none of which needs another's results, one kernel runs at once; ``way``
        computes a single one. 1 if each has a kernel of its own. Only for targets whose blocks may wait for one
        another."""

    def may_chain(self, node: Node) -> bool:
        """Whether a node may be part of a chain; only for targets whose blocks may wait for one another."""

    def chain_length(self, body: Graph) -> int:
        """How many nodes of a chain's body, from the first on, one kernel computes faster than the kernels of single
        nodes; only for targets whose blocks may wait for one another."""

    def geometry(self, spec: Any) -> Geometry:
        """The launch geometry of the kernel that ``spec`` describes; depends only on the description."""

    def input_checks(self, dtypes: Iterable[str]) -> Mapping[str, Any]:
        """The kernels that look for values outside a range in inputs of these dtypes, by symbol; empty if the host
        reads all inputs."""

    def blob_of(self, symbol: str) -> str:
        """The name of the blob that contains a kernel."""

    def blobs(self, kernels: Mapping[str, Any], compiler: KernelCompiler) -> list[Blob]:
        """The code of all kernels (symbol -> description); equal descriptions give equal bytes."""
