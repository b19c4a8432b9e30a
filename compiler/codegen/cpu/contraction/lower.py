"""Lowers contractions to kernels: matmul, conv, conv_dgrad and conv_wgrad."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dslc.compiler.codegen.cpu.contraction import conv_image
from dslc.compiler.codegen.cpu.contraction.conv import Conv
from dslc.compiler.codegen.cpu.contraction.depthwise_last import DepthwiseLast
from dslc.compiler.codegen.cpu.contraction.layouts import Window
from dslc.compiler.codegen.cpu.contraction.matmul import Matmul
from dslc.compiler.codegen.cpu.contraction.panels import Pack
from dslc.compiler.codegen.cpu.contraction.steps import Step, Steps
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import bool_attr, int_attr, int_tuple
from dslc.compiler.ops.compound.panels import LAYOUT, unpacked
from dslc.compiler.ops.spatial.channels_last import ChannelsLast, first_type

_DTYPES: Final = (DType.F32, DType.F64)


@lowers("matmul", "conv", "conv_last", "conv_wgrad", "conv_wgrad_last", "conv_dgrad_last", target="cpu")
def contraction(node: Node) -> list[Launch] | None:
    """The launches of ``steps_of``, if it has any."""
    found = steps_of(node)
    if found is None:
        return None
    arguments: dict[str, Value | Scratch] = {f"in{i}": v for i, v in enumerate(node.inputs)}
    arguments |= {f"tmp{i}": Scratch(i, size) for i, size in enumerate(found.scratch)}
    return _launches(found.steps, arguments | {"out0": node.out})


def _launches(steps: Iterable[Step], arguments: Mapping[str, Value | Scratch]) -> list[Launch]:
    made = []
    for step in steps:
        *reads, target = (arguments[name] for name in step.args)  # every kernel writes only its last argument
        made.append(Launch(step.kernel, tuple(reads), (target,)))
    return made


def packing(node: Node, operand: int) -> Step | None:
    """The only step of a product that reads this operand, if it copies it into panels; else None."""
    found = steps_of(node)
    reading = [step for step in found.steps if f"in{operand}" in step.args] if found is not None else []
    return reading[0] if len(reading) == 1 and isinstance(reading[0].kernel, Pack) else None


def layout_of(node: Node, operand: int) -> Attrs | None:
    """The attributes of ``panels`` by which a product's kernels copy an operand; None if they read it in place."""
    step = packing(node, operand)
    if step is None:
        return None
    assert isinstance(step.kernel, Pack)
    return {name: getattr(step.kernel, name) for name in LAYOUT}


@lowers("panels", target="cpu")
def panels(node: Node) -> list[Launch]:
    """One kernel."""
    layout: dict[str, Any] = {name: node.attrs[name] for name in LAYOUT}
    return [Launch(Pack(node.types[0].dtype, **layout), node.inputs, node.outputs)]


@lowers("of_panels", target="cpu")
def of_panels(node: Node) -> list[Launch] | None:
    """The launches of the product without the one that packs."""
    whole, operand = unpacked(node), int_attr(node.attrs, "operand")
    found, pack = steps_of(whole), packing(whole, operand)
    if found is None or pack is None or layout_of(whole, operand) != {name: node.attrs[name] for name in LAYOUT}:
        return None
    arguments: dict[str, Value | Scratch] = {f"in{1 - operand}": node.inputs[0], pack.args[1]: node.inputs[1]}
    for number, size in enumerate(found.scratch):
        if f"tmp{number}" not in arguments:
            taken = sum(isinstance(each, Scratch) for each in arguments.values())
            arguments[f"tmp{number}"] = Scratch(taken, size)
    return _launches((step for step in found.steps if step != pack), arguments | {"out0": node.out})


@lowers("conv_dgrad", target="cpu")
def conv_dgrad(node: Node) -> list[Launch] | None:
    """One contraction for each residue of the stride; one kernel for all if these would be too many."""
    found = contraction(node)
    return conv_image.conv_dgrad(node) if found is None else found


def steps_of(node: Node) -> Steps | None:
    """The kernels of a node with known sizes, f32 or f64; None for other ops, or if no kernel exists."""
    make = _STEPS.get(node.op.name)
    if make is None or node.types[0].dtype not in _DTYPES:
        return None
    return make(node)


def _matmul(node: Node) -> Steps:
    a, b = node.input_types
    transposed = (bool_attr(node.attrs, name) for name in ("transpose_a", "transpose_b"))
    return Matmul(a.dtype, a.ints, b.ints, *transposed).steps()


def _conv(node: Node) -> Steps | None:
    x, w = node.input_types
    return _spec(node, x, w, node.types[0]).forward() if x.bytes else None


def _conv_dgrad(node: Node) -> Steps | None:
    dy, w = node.input_types
    return _spec(node, node.types[0], w, dy).input_gradient() if dy.bytes else None


def _conv_wgrad(node: Node) -> Steps | None:
    x, dy = node.input_types
    return _spec(node, x, node.types[0], dy).weight_gradient() if x.bytes else None


def _spec(node: Node, x: TensorType, w: TensorType, y: TensorType) -> Conv | DepthwiseLast:
    """A convolution of x with w that gives y, or one of its gradients."""
    last = isinstance(node.op, ChannelsLast)
    if last:
        x, w, y = first_type(x), first_type(w), first_type(y)
    groups = int_attr(node.attrs, "groups")
    geometry = (int_tuple(node.attrs, name) for name in ("stride", "pad", "dilation"))
    space = tuple(Window(*axis) for axis in zip(x.ints[2:], w.ints[2:], *geometry))
    assert tuple(axis.count for axis in space) == y.ints[2:]
    if last and w.ints[1] == 1 and w.ints[0] == groups > 1:
        return DepthwiseLast(x.dtype, x.ints[0], groups, space)
    return Conv(x.dtype, x.ints[0], groups, w.ints[1], w.ints[0] // groups, space, last)


_STEPS: Final = {
    "matmul": _matmul, "conv": _conv, "conv_dgrad": _conv_dgrad, "conv_wgrad": _conv_wgrad,
    "conv_last": _conv, "conv_dgrad_last": _conv_dgrad, "conv_wgrad_last": _conv_wgrad,
}  # fmt: skip
