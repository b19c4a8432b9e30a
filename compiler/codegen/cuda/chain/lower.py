"""Lowers a chain to one resident kernel, and says where that is faster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dslc.compiler.codegen.cuda.chain.source import Source
from dslc.compiler.codegen.cuda.chain.stages import BLOCKS, THREADS
from dslc.compiler.codegen.cuda.cuda_cpp import Code
from dslc.compiler.codegen.cuda.kernel_spec import Compiled, KernelSpec
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.region.kernel import sized
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.bodies.chain import chained
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Graph, Node
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType

#: Seconds of a stage, and of a launch of a kernel of few rows, in addition to the time of their bytes: GPT-2 124M of
#: ``examples/gpt/writer.nn``, bf16, on an H200. A chain of 61 stages takes 221 us. Before, ``predict`` of 117 launches
#: took 369 us with the host's part; 108 became the chain, by number 340 us. Bytes take 58 us of each
#: (``benchmarks/results/loops.md``).
_STAGE: Final = 2.7e-6
_LAUNCH: Final = 2.6e-6
_COUNTER: Final = 128  # bytes of scratch memory that are 0 before the kernel


@described("Chained", "text shared_bytes")
@dataclass(frozen=True)
class Chained(KernelSpec):
    """The kernel ``k(inputs, results, counter, scratch)`` of a chain. ``text``: its stages. Its blocks wait for one
    another, so all of them must be on the device."""

    text: str
    shared_bytes: int

    @property
    def geometry(self) -> Geometry:
        return Geometry((BLOCKS, 1, 1), (THREADS, 1, 1), self.shared_bytes)

    def compile(self, symbol: str, architecture: str) -> Compiled:
        return Code("chain.cu", self.text).compile(symbol, architecture)


def lower_chain(node: Node) -> list[Launch]:
    """The launches of a chain: zeros for the counter of arrivals, then the kernel. Raises Unfit."""
    source = Source(chained(node.attrs))
    text = source.text
    counter, scratch = Scratch(0, _COUNTER), Scratch(1, max(1, source.scratch_bytes))
    zeros = Builder().node(OPS["full"], value=0.0, dtype=DType.F32, shape=(_COUNTER // 4,))
    [cleared] = pointwise.filled(zeros, 0.0)
    kernel = Chained(text, max(16, source.shared_bytes))
    return [sized(Launch(cleared.spec, (), (counter,))), Launch(kernel, node.inputs, (*node.outputs, counter, scratch))]


def is_faster(graph: Graph) -> bool:
    """Whether a chain's body takes less time as one kernel than as the kernels of its nodes, by the model. Raises Unfit
    if it cannot be one."""
    stages = Source(graph).stages
    launches = sum(len(lower(node) or ()) for node in graph.nodes)
    return 2 * H200.launch + len(stages) * _STAGE < launches * _LAUNCH
