"""What the driver takes of a GPU next to the blocks of the pool, foreseen from plans and code: for kernels' code, the
nodes of graphs, streams, libraries, pinned memory, and local memory of threads.

The driver tells nobody what it will take, so this is a model, of measurements. Each number below is of an NVIDIA H200
with driver 580 on 2026-11-22: bytes that cuMemGetInfo said were gone after a call, which come in pages of 2 MiB.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dslc.runtime.artifact.instructions import Copy, EventRecord, EventWait, Fill, Gemm, GraphOp, Instruction, Kernel
from dslc.runtime.cuda.code import check_cubin, cubin_code
from dslc.runtime.cuda.graphs.graph import Join, Mark, dependencies, fill_steps
from dslc.runtime.cuda.memory_pool import PAGE
from dslc.runtime.cuda.sizes import RUN_ONCE, SLOTS, LaneSizes
from dslc.runtime.cuda.transfers import has_frames

if TYPE_CHECKING:
    from dslc.runtime.artifact.file import Artifact
    from dslc.runtime.artifact.plan import Plan
    from dslc.runtime.session.context import Loaded

#: Code: its own bytes, so many more for each kernel, and for all of it. 2,048 kernels of 512 bytes took 6 MiB, 256 of
#: 8,320 bytes 4, 64 of 320,384 bytes 22, in one module or in many.
_A_KERNEL: Final = 2560
_ALL_CODE: Final = 1 << 20
#: Bytes of a kernel's code that is not compiled yet: those of DenseNet-121 have 7.3 kB, of ResNet-50 8.6, of others 4.
_CODE: Final = 8 << 10
#: Graphs: for each argument of a kernel's node, each call of a library, and each chain of nodes but the first, which
#: run next to others. Fitted to the graphs of nine models; ``tests/runtime/cuda/test_driver_bytes.py`` holds them.
_AN_ARGUMENT: Final = 420
_A_CALL: Final = 16_000
_A_CHAIN: Final = 142_000
#: Streams that share a page; those of a session and of each of its lanes.
_STREAMS: Final = 4
_OWN, _OF_LANE = 1, 2
#: A handle of each library.
HANDLES: Final = {"cublaslt": 1 * PAGE, "cudnn": 5 * PAGE}
#: Pinned memory of the host: 8 bytes for each of its pages of 4,096.
_PINNED: Final = 512
#: Local memory that threads have from the start, CU_LIMIT_STACK_SIZE; beyond that all threads of the GPU get what one
#: asks for: 4,096 bytes took 3,072 for each of 2,048 threads of 132 multiprocessors.
_STACK: Final = 1024
_THREADS: Final = 2048 * 132


@dataclass(frozen=True, slots=True)
class Code:
    """How many ``kernels``, the ``bytes`` of their code, and the most bytes of local memory that a thread takes."""

    kernels: int
    bytes: int
    local: int = 0

    @classmethod
    def foreseen(cls, programs: Sequence[Loaded]) -> Code:
        """Of programs whose kernels are not compiled yet."""
        kernels = len({i.blob for p in programs for i in p.plan.instructions if isinstance(i, Kernel)})
        return cls(kernels, kernels * _CODE)

    @property
    def taken(self) -> int:
        if not self.kernels:
            return 0
        return self.bytes + _A_KERNEL * self.kernels + _ALL_CODE + max(0, self.local - _STACK) * _THREADS


@dataclass(frozen=True, slots=True)
class Graph:
    """What a graph's bytes follow from. ``chains``: into how many its nodes fall, each of which follows one before."""

    entry: str
    nodes: int
    arguments: int
    calls: int
    chains: int

    @property
    def taken(self) -> int:
        return _AN_ARGUMENT * self.arguments + _A_CALL * self.calls + _A_CHAIN * (self.chains - 1)


def graph_of(entry: str, plan: Plan, frames: int = 1) -> Graph:
    """The graph of so many steps of a plan."""
    placed: list[tuple[int, Instruction | Mark | Join]] = []
    for _ in range(frames):
        placed += [(0, Join()), *(each for instruction in plan.instructions for each in _placed(plan, instruction))]
    steps, after = dependencies(placed)
    taken: set[int] = set()  # nodes that another one continues
    chains = 0
    for others in after:
        first = next((index for index in others if index not in taken), None)
        if first is None:
            chains += 1
        else:
            taken.add(first)
    arguments = sum(len(step.args) for step in steps if isinstance(step, Kernel))
    calls = sum(isinstance(step, Gemm | GraphOp) for step in steps)
    return Graph(entry, len(steps), arguments, calls, max(1, chains))


def _placed(plan: Plan, instruction: Instruction) -> Iterator[tuple[int, Instruction | Mark | Join]]:
    """As ``Binder.placed``: what an instruction puts on its stream."""
    match instruction:
        case EventRecord(event=event, stream=stream):
            yield stream, Mark(event, False)
        case EventWait(event=event, stream=stream):
            yield stream, Mark(event, True)
        case Copy(src=src, dst=dst, stream=stream):
            source, target = plan.buffers[src], plan.buffers[dst]
            if target.bytes and (source.region, source.offset) != (target.region, target.offset):
                yield stream, instruction
        case Fill(dst=dst, pattern=pattern, stream=stream):
            for _ in fill_steps(0, pattern, plan.buffers[dst].bytes // len(pattern), ""):
                yield stream, instruction
        case Kernel(stream=stream) | Gemm(stream=stream) | GraphOp(stream=stream):
            yield stream, instruction


def graphs_of(program: Loaded, steps: int) -> list[Graph]:
    """The graphs that a lane keeps for a program, of which a launch holds ``steps`` training steps: one; for training
    steps one for each slot, and as many of all steps of a launch."""
    if program.entry in RUN_ONCE:
        return []
    one = graph_of(program.entry, program.plan)
    if not one.nodes:
        return []
    if not has_frames(program.entry):
        return [one]
    return [one] * SLOTS + ([graph_of(program.entry, program.plan, steps)] * SLOTS if steps > 1 else [])


def code_of(artifact: Artifact, programs: Sequence[Loaded], capability: tuple[int, int]) -> Code:
    """The code that these programs run, all for one ``capability``. ArtifactError R301 for an unsound cubin."""
    names = {i.blob for p in programs for i in p.plan.instructions if isinstance(i, Kernel)}
    listed = names.intersection(artifact.blobs("cubin"))
    for name in sorted(listed):
        check_cubin(artifact.blob(name), capability, name)
    found = [cubin_code(artifact.blob(name), name) for name in sorted(listed)]
    return Code(
        len(names), sum(n for n, _ in found) + _CODE * len(names - listed), max((m for _, m in found), default=0)
    )


def driver_bytes(programs: Sequence[Loaded], code: Code, sizes: LaneSizes, contexts: int = 1) -> int:
    """About how many bytes a session of these programs makes the driver take next to those of the pool."""
    graphs = [graph for program in programs for graph in graphs_of(program, sizes.steps)]
    calls = (i for p in programs for i in p.plan.instructions if isinstance(i, Gemm | GraphOp))
    return taken(code, sum(graph.taken for graph in graphs), {call.provider for call in calls}, sizes.pinned, contexts)


def taken(code: Code, graphs: int, libraries: Collection[str], pinned: int, contexts: int = 1) -> int:
    """The same from the bytes of a lane's ``graphs`` and those that are ``pinned`` for it."""
    streams = _OWN + _OF_LANE * contexts + bool(libraries)
    parts = (
        code.taken,
        contexts * graphs,
        PAGE * -(-streams // _STREAMS),
        sum(HANDLES[library] for library in libraries),
        contexts * pinned // _PINNED,
    )
    return sum(-(-part // PAGE) * PAGE for part in parts)
