"""Modelled time of a node by the roofline model: the longer of moving its bytes and doing its arithmetic, plus a
launch.

    seconds = launch + start + max(bytes / (bandwidth * part), operations / (rate * part))

(Williams, Waterman and Patterson 2009.) Each tensor that a node reads or writes moves once; views cost nothing. No
kernel reaches its roof: ``part``, the fraction that kernels of a kind reach, and ``start``, their fixed overhead, were
measured. The model compares plans of one program; it does not predict exact times.

Each target has the figures of one machine. sm_90: an H200, measured: a copy of 8.6 GB moves 4.3 TB/s,
products of 8192 x 8192 bf16 matrices run at 790 TFLOP/s; f32 by NVIDIA's data sheet (67 TFLOP/s); a kernel in a
CUDA graph costs 1.1 us in addition to its work. sm_80 (A100, 80 GB) and sm_100 (B200): 0.9 of the bandwidth and 0.8 of
the matrix rate of their data sheets, the fractions that the H200 reaches; their kernels are assumed to reach the same
fractions as the H200's. cpu: two cores of a Zen 4, measured: a copy moves 20 GB/s, sgemm does 175 GFLOP/s, pointwise
code about 10 G operations a second, a kernel costs 2 us to start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from dslc.compiler.ir.graph import Attr, Node
from dslc.compiler.ir.op import OPS, Pointwise
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import flag_attr
from dslc.compiler.ops.fused import PLACES, cut_inputs, read_bytes

#: Matrix products and convolutions, with their gradients and with fused epilogues.
PRODUCTS: Final = frozenset(
    {"matmul", "contraction"}
    | {f"{name}{layout}" for name in ("conv", "conv_dgrad", "conv_wgrad") for layout in ("", "_last")}
)
#: Ops that compute matrix products.
CONTRACTIONS: Final = PRODUCTS | {"sdpa", "sdpa_grad"}
_BODIES: Final = ("fused", "fused_sums", "finished_sums")
_TILE: Final = 128  # columns of a product tile computed by a thread block


@dataclass(frozen=True, slots=True)
class Reached:
    """Achieved fractions of peak bandwidth and of the peak arithmetic rate for a kind of kernel, and its fixed overhead
    in seconds in addition to its work and launch."""

    bandwidth: float = 1.0
    arithmetic: float = 1.0
    start: float = 0.0


@dataclass(frozen=True, slots=True)
class Machine:
    """Bytes per second; operations per second of matrix products in 16, 32 and 64 bits, and of everything else; seconds
    to launch a kernel. ``reached``: by kind of kernel (``kind``); a kind that is not listed reaches the roof."""

    bandwidth: float
    matrix16: float
    matrix32: float
    matrix64: float
    scalar: float
    launch: float
    reached: Mapping[str, Reached] = field(default_factory=dict)

    def matrix(self, dtype: DType, tf32: bool = False) -> float:
        """The rate of matrix products of this dtype; for TF32, half the 16-bit rate."""
        return self.matrix16 / 2 if tf32 else {2: self.matrix16, 4: self.matrix32}.get(dtype.itemsize, self.matrix64)

    def arithmetic(self, kind: str) -> float:
        """Achieved operations per second of a kind of kernel other than matrix products."""
        return self.scalar * self.reached.get(kind, _ROOF).arithmetic


_ROOF: Final = Reached()

#: Fitted to the times of each kernel of training steps, least sum of absolute differences by kind: ResNet-50 with 256
#: and 32 images and ResNet-152 with 152, bf16, on one H200 on 2026-11-22 (``dslc bench ARTIFACT --entry train_step
#: --json``, built with ``--providers vendor --mirror never``), minus the overhead of measuring single kernels.
_VENDOR: Final = MappingProxyType({
    "product": Reached(0.85, 0.9, 4e-6),
    "gradient": Reached(0.9, 0.9, 4e-6),
    "weight gradient": Reached(0.9, 0.85, 6e-6),
    "attention": Reached(0.9, 0.3, 4e-6),
    "elements": Reached(0.9, 0.2, 1.5e-6),
    "sums": Reached(0.9, 0.2, 5e-6),
    "windows": Reached(0.55, 1.0, 0.0),
    "copies": Reached(1.0, 1.0, 1e-6),
    "updates": Reached(0.75, 1.0, 4e-6),
})  # fmt: skip
#: The compiler's own product kernels: ResNet-50 with 256 and 32 images, the same day, built with ``--providers own``.
_OWN: Final = MappingProxyType({
    **_VENDOR,
    "product": Reached(0.8, 0.45, 7e-6),
    "gradient": Reached(0.8, 0.45, 10e-6),
    "weight gradient": Reached(0.9, 0.4, 10e-6),
})  # fmt: skip

MACHINES: Final = {
    "cpu": Machine(20e9, 175e9, 175e9, 87e9, 10e9, 2e-6),
    "sm_80": Machine(1.8e12, 250e12, 19.5e12, 9.7e12, 19.5e12, 1.1e-6, _VENDOR),
    "sm_90": Machine(4.3e12, 790e12, 67e12, 34e12, 67e12, 1.1e-6, _VENDOR),
    "sm_100": Machine(7.2e12, 1800e12, 80e12, 40e12, 80e12, 1.1e-6, _VENDOR),
}


def machine_of(target: str, provider: str = "vendor") -> Machine:
    """The machine of a target with the kernels of a provider (``vendor``; any other: the compiler's own kernels)."""
    machine = MACHINES[target]
    return machine if provider == "vendor" or target == "cpu" else replace(machine, reached=_OWN)


_KINDS: Final = {
    "conv": "product", "conv_last": "product", "matmul": "product",
    "conv_dgrad": "gradient", "conv_dgrad_last": "gradient",
    "conv_wgrad": "weight gradient", "conv_wgrad_last": "weight gradient",
    "sdpa": "attention", "sdpa_grad": "attention",
    "fused": "elements", "fused_sums": "sums", "finished_sums": "sums", "sum": "sums", "sum_to": "sums",
    "mean": "sums",
    "casts": "copies", "transpose": "copies", "concat": "copies", "slice": "copies", "pad": "copies",
    "expand": "copies",
}  # fmt: skip


def kind(node: Node) -> str:
    """The kind of kernel that runs a node, as in ``Machine.reached``."""
    name = node.op.name
    if name == "contraction":
        name = str(node.attrs["product"])
    if name in _KINDS:
        return _KINDS[name]
    if isinstance(node.op, Pointwise):
        return "elements"
    return "windows" if "pool" in name else "updates" if name.endswith("_update") else "rest"


def moved(node: Node) -> int:
    """Bytes that a node reads and writes, each tensor once; its sizes must be ints."""
    if node.op.view:
        return 0
    read = read_bytes(node) if node.op.name == "fused" else sum(v.type.bytes for v in dict.fromkeys(node.inputs))
    return read + sum(t.bytes for t in node.types)


def roof(node: Node, machine: Machine) -> tuple[float, float]:
    """Seconds to move a node's bytes, and seconds of its arithmetic; its sizes must be ints."""
    if node.op.view:
        return 0.0, 0.0
    rate = (
        machine.matrix(node.types[0].dtype, flag_attr(node.attrs, "tf32"))
        if node.op.name in CONTRACTIONS
        else machine.scalar
    )
    return moved(node) / machine.bandwidth, operations(node) / rate


def work(node: Node, machine: Machine) -> float:
    """Seconds of one node without its launch; its sizes must be ints."""
    if node.op.view:
        return 0.0
    moving, arithmetic = roof(node, machine)
    reached = machine.reached.get(kind(node), _ROOF)
    if reached is not _ROOF and node.op.name in CONTRACTIONS:
        arithmetic /= _filled(node)
    return reached.start + max(moving / reached.bandwidth, arithmetic / reached.arithmetic)


def seconds(node: Node, machine: Machine) -> float:
    """Modelled time of one node; its sizes must be ints."""
    return 0.0 if node.op.view else machine.launch + work(node, machine)


def kernel_seconds(kind: str, bytes: int, operations: int, machine: Machine) -> float:
    """Modelled time of one kernel, not a matrix product, that moves ``bytes`` bytes and does ``operations``
    operations."""
    reached = machine.reached.get(kind, _ROOF)
    moving, arithmetic = bytes / machine.bandwidth, operations / machine.scalar
    return machine.launch + reached.start + max(moving / reached.bandwidth, arithmetic / reached.arithmetic)


def _filled(node: Node) -> float:
    """The fraction of a product's tiles that its columns fill: 64 channels fill half a tile."""
    result, second = _elements(node.types[0]), _elements(node.inputs[1].type)
    rows = node.op.cost(node).flops // 2 // max(1, second)
    columns = max(1, result // max(1, rows))
    return columns / (-(-columns // _TILE) * _TILE)


def _elements(type: TensorType) -> int:
    return type.bytes // type.dtype.itemsize


def total_seconds(nodes: Iterable[Node], machine: Machine) -> float:
    """Modelled time of nodes that run one after another."""
    return sum(seconds(node, machine) for node in nodes)


def operations(node: Node) -> int:
    """Arithmetic operations of a node."""
    if node.op.name in _BODIES:
        cut = cut_inputs(node.attrs) if node.op.name == "fused" else ()
        whole = (v for i, v in enumerate(node.inputs) if i not in cut)
        widest = max(v.type.bytes // v.type.dtype.itemsize for v in (*whole, *node.outputs))
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
    if name in PLACES:
        return 0
    op = OPS[name]
    return op.operations(dict(attrs)) if isinstance(op, Pointwise) else 1
