"""How long a node takes by the roofline model: the longer of moving its bytes and doing its arithmetic, and a launch.

    seconds = launch + max(bytes / bandwidth, operations / rate)

(Williams, Waterman and Patterson 2009.) Each tensor that a node reads or writes moves once; views cost nothing. It is a
model for comparing two plans of one program, not a promise: no node reaches its roof.

The figures are of the machine that each target stands for. sm_90: an H200, measured: a copy of 8.6 GB moves 4.3 TB/s,
products of 8192 x 8192 bf16 matrices run at 790 TFLOP/s; f32 by NVIDIA's data sheet (67 TFLOP/s); a kernel inside a
CUDA graph costs 1.1 us beside its work. sm_80 (A100, 80 GB) and sm_100 (B200): 0.9 of the bandwidth and 0.8 of the
matrix rate of their data sheets, which is what the H200 reaches of its own. cpu: two cores of a Zen 4, measured: a copy
moves 20 GB/s, sgemm does 175 GFLOP/s, pointwise code about 10 G operations a second, a kernel costs 2 us to start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dslc.compiler.ir.graph import Attr, Node
from dslc.compiler.ir.op import OPS, Pointwise
from dslc.compiler.ir.types import DType

#: Ops whose arithmetic is products of matrices.
CONTRACTIONS: Final = frozenset(
    {"matmul", "sdpa", "sdpa_grad"}
    | {f"{name}{layout}" for name in ("conv", "conv_dgrad", "conv_wgrad") for layout in ("", "_last")}
)
_BODIES: Final = ("fused", "fused_sums")


@dataclass(frozen=True, slots=True)
class Machine:
    """Bytes a second; operations a second of matrix products in 16, 32 and 64 bits, and of everything else; seconds to
    start a kernel."""

    bandwidth: float
    matrix16: float
    matrix32: float
    matrix64: float
    scalar: float
    launch: float

    def matrix(self, dtype: DType) -> float:
        """The rate of products of matrices of this dtype."""
        return {2: self.matrix16, 4: self.matrix32}.get(dtype.itemsize, self.matrix64)


MACHINES: Final = {
    "cpu": Machine(20e9, 175e9, 175e9, 87e9, 10e9, 2e-6),
    "sm_80": Machine(1.8e12, 250e12, 19.5e12, 9.7e12, 19.5e12, 1.1e-6),
    "sm_90": Machine(4.3e12, 790e12, 67e12, 34e12, 67e12, 1.1e-6),
    "sm_100": Machine(7.2e12, 1800e12, 80e12, 40e12, 80e12, 1.1e-6),
}


def moved(node: Node) -> int:
    """Bytes that a node reads and writes, each tensor once; its sizes are ints."""
    if node.op.view:
        return 0
    return sum(v.type.bytes for v in dict.fromkeys(node.inputs)) + sum(t.bytes for t in node.types)


def roof(node: Node, machine: Machine) -> tuple[float, float]:
    """Seconds to move a node's bytes, and seconds of its arithmetic; its sizes are ints."""
    if node.op.view:
        return 0.0, 0.0
    if node.op.name in CONTRACTIONS:
        arithmetic = node.op.cost(node).flops / machine.matrix(node.types[0].dtype)
    else:
        arithmetic = operations(node) / machine.scalar
    return moved(node) / machine.bandwidth, arithmetic


def seconds(node: Node, machine: Machine) -> float:
    """Modelled time of one node, whose sizes are ints."""
    return 0.0 if node.op.view else machine.launch + max(roof(node, machine))


def total_seconds(nodes: Iterable[Node], machine: Machine) -> float:
    """Modelled time of nodes that run one after another."""
    return sum(seconds(node, machine) for node in nodes)


def operations(node: Node) -> int:
    """Arithmetic operations of a node that is no contraction."""
    if node.op.name in _BODIES:
        widest = max(v.type.bytes // v.type.dtype.itemsize for v in (*node.inputs, *node.outputs))
        body = node.attrs["body"]
        assert isinstance(body, tuple)
        return widest * sum(_each(step[0], len(step[1]), step[2]) for step in body)  # type: ignore[index,arg-type,misc]
    if isinstance(node.op, Pointwise):
        return (
            node.types[0].bytes
            // node.types[0].dtype.itemsize
            * _each(node.op.name, len(node.inputs), tuple(sorted(node.attrs.items())))
        )
    return node.op.cost(node).flops


@lru_cache(maxsize=4096)
def _each(name: str, arity: int, attrs: tuple[tuple[str, Attr], ...]) -> int:
    """Operations of a pointwise op for one element."""
    op = OPS[name]
    return op.operations(dict(attrs)) if isinstance(op, Pointwise) else 1
