"""Checks a plan's calls of vendor libraries: whether the operands of a matrix product or of a convolution fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dslc.runtime.artifact.attention_check import ALIGNMENT, KINDS, attention_fault, ints
from dslc.runtime.artifact.instructions import Gemm, GraphOp
from dslc.runtime.artifact.plan import Buffer

_SUMS: Final = {"f64": "f64"}  # dtype -> dtype of the accumulator; f32 for all others
_NUMBERS: Final = {2: "two", 3: "three"}
_CONV_ATTRS: Final = ("compute", "dilation", "layout", "pad", "stride")
_SUM_ATTRS: Final = ("added", "relu")  # of a convolution with what is added to it


def gemm_fault(gemm: Gemm, buffers: Sequence[Buffer]) -> str | None:
    """Why a matrix product is invalid; None if it is valid. Its indices have been checked."""
    a, b, out = (buffers[i] for i in (gemm.a, gemm.b, gemm.out))
    if len(a.shape) < 2 or len(a.shape) != len(b.shape) or len(a.shape) != len(out.shape):
        return "a, b and out are matrices, or stacks of them, of one rank"
    m, k = a.shape[-2:] if not gemm.transpose_a else a.shape[:-3:-1]
    k_too, n = b.shape[-2:] if not gemm.transpose_b else b.shape[:-3:-1]
    stacks = (a.shape[:-2], b.shape[:-2])
    ones = (1,) * (len(a.shape) - 2)
    fits = all(stack in (out.shape[:-2], ones) for stack in stacks) and out.shape[:-2] in stacks
    if k != k_too or out.shape[-2:] != (m, n) or not fits or a.dtype != b.dtype:
        return f"{a} times {b} does not give {out}"
    if gemm.c is not None and (buffers[gemm.c].shape, buffers[gemm.c].dtype) != (out.shape, out.dtype):
        return f"c, {buffers[gemm.c]}, is not like {out}"
    if gemm.bias is not None and buffers[gemm.bias].shape != (n,):
        return f"the bias {buffers[gemm.bias]} is not one row of {out}"
    if gemm.provider == "cublaslt":
        if gemm.bias is not None and buffers[gemm.bias].dtype != out.dtype:
            return f"the bias {buffers[gemm.bias]} is not of the dtype of {out}"
        if len(a.shape) > 3:
            return "a stack has one axis before those of its matrices"
        if a.dtype not in ("f16", "bf16", "f32", "f64") or out.dtype not in (a.dtype, _SUMS.get(a.dtype, "f32")):
            return f"{a} times {b} is not computed as {out.dtype}"
        if gemm.compute != _SUMS.get(a.dtype, "f32") and (a.dtype, gemm.compute) != ("f32", "tf32"):
            return f"sums of {a.dtype} in {gemm.compute}"
    read = [b for b in (gemm.a, gemm.b, gemm.c, gemm.bias) if b is not None]
    return _shared(gemm.out, gemm.workspace, read, buffers)


def graph_fault(graph: GraphOp, buffers: Sequence[Buffer]) -> str | None:
    """Why an operation graph is invalid; None if it is valid. Its indices have been checked."""
    if graph.provider != "cudnn":
        return f"{graph.provider} has no operation graphs"
    if graph.kind in KINDS:
        shared = (_shared(out, graph.workspace, graph.inputs, buffers) for out in graph.outputs)
        return attention_fault(graph, buffers) or next((why for why in shared if why is not None), None)
    if graph.kind not in ("conv", "conv_dgrad", "conv_wgrad"):
        return f"cuDNN has no operation `{graph.kind}`"
    more = graph.attrs.get("added", [])
    if not isinstance(more, list) or any(more.count(kind) != 1 or kind not in ("bias", "c") for kind in more):
        return "`added` lists a bias, or c, or both"
    if len(graph.inputs) != 2 + len(more) or len(graph.outputs) != 1:
        return f"`{graph.kind}` has two inputs, one for each that is added, and one output"
    operands = [buffers[i] for i in (*graph.inputs, *graph.outputs)]
    if len({b.dtype for b in operands}) != 1 or operands[0].dtype not in ("f16", "bf16", "f32"):
        return f"`{graph.kind}` has one dtype: f16, bf16 or f32"
    if any(b.offset % ALIGNMENT for b in operands):
        return f"an operand does not begin at a multiple of {ALIGNMENT} bytes"
    first, second, *others, out = operands
    fault = _conv_fault(graph, [first, second, out]) or _sum_fault(graph, more, others, out)
    return fault or _shared(graph.outputs[0], graph.workspace, graph.inputs, buffers)


def _sum_fault(graph: GraphOp, kinds: Sequence[str], others: Sequence[Buffer], out: Buffer) -> str | None:
    if not any(name in graph.attrs for name in _SUM_ATTRS):
        return None
    if graph.kind != "conv" or type(graph.attrs.get("relu")) is not bool:
        return "`conv` has `added` and `relu`, true or false; its gradients have neither"
    channels = (out.shape[-1 if graph.attrs["layout"] == "last" else 1],)
    for kind, other in zip(kinds, others):
        if other.shape != (out.shape if kind == "c" else channels):
            return f"{other} cannot be added to {out} as {kind}"
    return None


def conv_operands(graph: GraphOp, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The channels-first shapes of x, w and y, from those of the inputs and the output."""
    x, w, y = (shapes[i] for i in {"conv": (0, 1, 2), "conv_dgrad": (2, 1, 0), "conv_wgrad": (0, 2, 1)}[graph.kind])
    if graph.attrs["layout"] == "first":
        return [x, w, y]
    return [(s[0], s[-1], *s[1:-1]) for s in (x, w, y)]


def _conv_fault(graph: GraphOp, operands: Sequence[Buffer]) -> str | None:
    attrs = graph.attrs
    computes = ("f32", "tf32") if operands[0].dtype == "f32" else ("f32",)
    given = tuple(sorted(name for name in attrs if name not in _SUM_ATTRS))
    if given != _CONV_ATTRS or attrs["layout"] not in ("first", "last"):
        return f"the attributes of a convolution are {', '.join(_CONV_ATTRS)}"
    if attrs["compute"] not in computes:
        return f"a convolution of {operands[0].dtype} adds up in {' or '.join(computes)}, not {attrs['compute']}"
    rank = len(operands[0].shape)
    if rank not in (4, 5) or any(len(b.shape) != rank or not b.bytes for b in operands):
        return "a convolution is of tensors with four or five axes, none of them 0"
    stride, pad, dilation = attrs["stride"], attrs["pad"], attrs["dilation"]
    if not (ints(stride, 1, rank - 2) and ints(pad, 0, rank - 2) and ints(dilation, 1, rank - 2)):
        return f"stride, pad and dilation are {_NUMBERS[rank - 2]} ints each"
    x, w, y = conv_operands(graph, [b.shape for b in operands])
    spans = [d * (k - 1) + 1 for k, d in zip(w[2:], dilation)]
    count = tuple((s + 2 * p - span) // step + 1 for s, p, span, step in zip(x[2:], pad, spans, stride))
    groups = x[1] // w[1]
    if (x[0], w[0], *count) != y or groups * w[1] != x[1] or not groups or w[0] % groups:
        return f"{operands[0]} and {operands[1]} do not give {operands[2]}"
    return None


def _shared(out: int, workspace: int | None, inputs: Sequence[int], buffers: Sequence[Buffer]) -> str | None:
    """Why the output or workspace must not be where it is: it overlaps an input, or the two overlap."""
    on = next((buffers[i] for i in inputs if buffers[out].overlaps(buffers[i])), None)
    if on is not None:
        return f"the result {buffers[out]} shares bytes with {on}"
    if workspace is None:
        return None
    room = buffers[workspace]
    if room.dtype != "u8" or len(room.shape) != 1:
        return f"the workspace is {room}, not bytes"
    on = next((buffers[i] for i in (*inputs, out) if room.overlaps(buffers[i])), None)
    return f"the workspace shares bytes with {on}" if on is not None else None


def collective_fault(kind: str, src: Buffer, dst: Buffer) -> str | None:
    """Why the buffers of a collective do not fit each other; None if they do."""
    one, other = (src, dst) if kind != "reduce_scatter" else (dst, src)
    even = (
        one.bytes == other.bytes
        if kind in ("all_reduce", "broadcast")
        else (one.bytes > 0 and other.bytes % one.bytes == 0)
    )
    return None if src.dtype == dst.dtype and even else f"{kind} of {src} does not fit {dst}"
