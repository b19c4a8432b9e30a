"""Modelled time of a node by the roofline model: the longer of moving its bytes and doing its arithmetic, plus a
launch.

    seconds = launch + start + max(bytes / (bandwidth * part), operations / (rate * part))

(Williams, Waterman and Patterson 2009.) Each tensor that a node reads or writes moves once, or as many bytes of it as
the op takes, such as the rows of a lookup or the part of a slice; views cost nothing. No kernel reaches its roof:
``part``, the fraction that kernels of a kind reach, and ``start``, their fixed overhead, were measured
(``codegen/device_model.py``). The model compares plans of one program; it does not predict exact times. If the way in
which a build computes a node was measured on the GPU, that time counts instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Final

from dslc.compiler.codegen.device_model import DeviceModel, Fractions, Reached
from dslc.compiler.codegen.target import OTHERWISE, Target
from dslc.compiler.codegen.targets import TARGETS, target_of
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.choice import Choices, key_of, providers_of
from dslc.compiler.ir.graph import Attr, Node
from dslc.compiler.ir.op import OPS, PRODUCT_KINDS, KernelKind, Pointwise
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import flag_attr
from dslc.compiler.ops.compound.contraction import contraction, product_and_epilogue
from dslc.compiler.ops.compound.fused import PLACES, FusedOp, cut_inputs, read_bytes
from dslc.compiler.ops.compound.fused_rows import core_op, fused_rows
from dslc.compiler.ops.compound.fused_stack import fused_stack, part_type
from dslc.compiler.ops.compound.panels import of_panels
from dslc.compiler.ops.spatial.few_channels import is_of_few_channels, packs_taps

#: Kinds of kernels that multiply matrices.
MATRIX_KINDS: Final = PRODUCT_KINDS | {"attention", "attention gradient"}
_SCALAR_PART: Final = 0.4  # of the scalar rate, which kernels for few channels reach
#: The part of a large product's start in which some multiprocessors have no tile. On an H200, ResNet-50 with 32 images
#: saved 46 % of what the model said when this was 1 (benchmarks/results/history.md, Streams).
_IDLE: Final = 0.5
_TILE: Final = 128  # columns of a product tile computed by a thread block


_KNOWN: Final = 4096  # problems whose provider is remembered
_PEAK: Final = Reached()


@dataclass(frozen=True, slots=True)
class Machine:
    """A device, and the fractions of its rates that each kind of kernel reaches; a kind that is not listed reaches the
    roof. ``measured``: the seconds of one call of a node, launch included; None if they were not measured. ``own``: the
    fractions of the compiler's kernels, which run the products that ``calls`` says no library computes."""

    device: DeviceModel
    reached: Fractions
    measured: Callable[[Node], float | None] | None = field(default=None, compare=False)
    own: Fractions | None = None
    calls: Callable[[Node], bool] = field(default=lambda node: True, compare=False)

    def of_node(self, node: Node) -> Reached:
        """The fractions of the kernel that runs a node."""
        found = kind(node)
        if self.own is not None and found in MATRIX_KINDS and not self.calls(node):
            return self.own.get(found, _PEAK)
        return self.of_kind(found)

    def of_kind(self, kind: str) -> Reached:
        """The fractions of a kind of kernel."""
        return self.reached.get(kind, _PEAK)

    def arithmetic(self, kind: str) -> float:
        """Achieved operations per second of a kind of kernel other than matrix products."""
        return self.device.scalar * self.of_kind(kind).arithmetic


@cache
def machine_of(target: str, provider: str = "vendor") -> Machine:
    """The machine of a target with the kernels of a provider (``vendor``; any other: the compiler's own kernels)."""
    row = TARGETS[target]
    if provider != "vendor":
        return Machine(row.device, row.kernels)
    if row.libraries == row.kernels:
        return Machine(row.device, row.libraries)
    return Machine(row.device, row.libraries, own=row.kernels, calls=_Calls(target_of(target, vendor=True)))


class _Calls:
    """Whether a library computes a product: asked once for each problem."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: dict[str, bool] = {}

    def __call__(self, node: Node) -> bool:
        key = key_of(node)
        if key not in self._known:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[key] = self._target.why_no_library(node) == OTHERWISE
        return self._known[key]


def machine_for(build: Build) -> Machine:
    """The machine of a build, with the measured times of the ways that it takes."""
    return machine_with(build.target, build.provider == "vendor", build.choices)


def machine_with(target: str, vendor: bool, choices: Choices) -> Machine:
    """The machine of a target, with the measured times of the best ways by own kernels and, with ``vendor``, by the
    libraries."""
    machine = machine_of(target, "vendor" if vendor else "own")
    if not choices.ways:
        return machine
    known: dict[Node, float | None] = {}

    def measured(node: Node) -> float | None:
        if node not in known:
            known[node] = choices.seconds(node, providers_of(vendor))
        return known[node]

    return replace(machine, measured=measured)


def kind(node: Node) -> KernelKind:
    """The kind of kernel that runs a node: for a product with an epilogue or a packed factor that of the product, for a
    ``fused_rows`` that of its core, otherwise that of the op."""
    if node.op is fused_rows:
        return core_op(node.attrs).kernel_kind
    if node.op is contraction or node.op is of_panels:
        return OPS[str(node.attrs["product"])].kernel_kind
    return node.op.kernel_kind


def moved(node: Node) -> int:
    """Bytes that a node reads and writes, each tensor once, and no more of them than the op takes; its sizes must be
    ints."""
    if node.op.view:
        return 0
    made = sum(t.bytes for t in node.types)
    if isinstance(node.op, FusedOp):
        return read_bytes(node) + made
    return min(sum(v.type.bytes for v in dict.fromkeys(node.inputs)) + made, node.op.cost(node).bytes)


def roof(node: Node, machine: Machine) -> tuple[float, float]:
    """Seconds to move a node's bytes, and seconds of its arithmetic; its sizes must be ints."""
    if node.op.view:
        return 0.0, 0.0
    device = machine.device
    rate = (
        device.matrix(node.types[0].dtype, flag_attr(node.attrs, "tf32"))
        if kind(node) in MATRIX_KINDS
        else device.scalar
    )
    return moved(node) / device.bandwidth, operations(node) / rate


def work(node: Node, machine: Machine) -> float:
    """Seconds of one node without its launch; its sizes must be ints."""
    if node.op.view:
        return 0.0
    if machine.measured is not None and (found := machine.measured(node)) is not None:
        return max(0.0, found - machine.device.launch)
    return machine.of_node(node).start + _modelled(node, machine)


def halves(node: Node, machine: Machine) -> tuple[float, float]:
    """Latency, during which the machine is free for other nodes, and busy time, in seconds; their sum is the node's
    time. The latency is the launch and the start. A node that is busy for longer than that fills the machine while it
    starts, too; a product does for the part of the start that is not ``_IDLE``. The latency of a measured product with
    fewer tiles than the device has multiprocessors also contains the time of the others, as far as the model needs less
    for the product's work."""
    whole = work(node, machine)
    start = min(machine.of_node(node).start, whole)  # measured work may be less than the start
    busy = whole - start
    if _is_long(node, machine):
        busy += (1 - _IDLE) * start if is_product(node) else start
    if machine.measured is not None and kind(node) in PRODUCT_KINDS and machine.device.multiprocessors:
        tiles = _elements(node.types[0]) / _TILE**2
        part = min(1.0, tiles / machine.device.multiprocessors)
        busy = min(busy, max(part * busy, _modelled(node, machine)))
    return machine.device.launch + whole - busy, busy


def is_product(node: Node) -> bool:
    """Whether a node multiplies matrices, in tiles."""
    return kind(node) in MATRIX_KINDS


def fills(node: Node, machine: Machine) -> bool:
    """Whether a node that is no product keeps the machine busy for longer than it takes to launch and start."""
    return not is_product(node) and _is_long(node, machine)


def _is_long(node: Node, machine: Machine) -> bool:
    start = machine.of_node(node).start
    return work(node, machine) - start > machine.device.launch + start


def _modelled(node: Node, machine: Machine) -> float:
    """Seconds of a node without its launch and start, by the model."""
    moving, arithmetic = roof(node, machine)
    reached = machine.of_node(node)
    if reached is not _PEAK and kind(node) in MATRIX_KINDS:
        if machine.device.multiprocessors and _is_of_few_channels(node):
            arithmetic = operations(node) / (machine.device.scalar * _SCALAR_PART)
            return max(moving / reached.bandwidth, arithmetic)
        arithmetic /= _filled(node)
    return max(moving / reached.bandwidth, arithmetic / reached.arithmetic)


def _is_of_few_channels(node: Node) -> bool:
    """Whether own kernels compute a convolution without tensor cores, bound by memory or by scalar arithmetic."""
    first = product_and_epilogue(node)[0] if node.op is contraction else node
    return is_of_few_channels(first) and not (first.op.name.endswith("_last") and packs_taps(first))


def seconds(node: Node, machine: Machine) -> float:
    """Modelled or measured time of one node; its sizes must be ints."""
    return 0.0 if node.op.view else machine.device.launch + work(node, machine)


def kernel_seconds(kind: str, bytes: int, operations: int, machine: Machine) -> float:
    """Modelled time of one kernel, not a matrix product, that moves ``bytes`` bytes and does ``operations``
    operations."""
    reached = machine.of_kind(kind)
    moving, arithmetic = bytes / machine.device.bandwidth, operations / machine.device.scalar
    return machine.device.launch + reached.start + max(moving / reached.bandwidth, arithmetic / reached.arithmetic)


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
    if isinstance(node.op, FusedOp):
        cut = cut_inputs(node.attrs)
        whole = (v.type for i, v in enumerate(node.inputs) if i not in cut)
        made = node.types if node.op is not fused_stack else (part_type(node),)
        widest = max(t.bytes // t.dtype.itemsize for t in (*whole, *made))
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
