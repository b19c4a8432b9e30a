"""Lowers sdpa and sdpa_grad: packs the keys, then processes tiles."""

from __future__ import annotations

import math

from dslc.compiler.codegen.cpu.attention.backward import AttentionGrad
from dslc.compiler.codegen.cpu.attention.forward import PANEL, Attention, Heads
from dslc.compiler.codegen.cpu.contraction.pack import Combine, Fill
from dslc.compiler.codegen.cpu.contraction.panels import Pack
from dslc.compiler.codegen.cpu.llvm.writer import lanes_of
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, broadcast_strides, dense
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, float_attr
from dslc.compiler.ops.compound.strided_attention import bias_of
from dslc.compiler.ops.products.attention_terms import is_plain


def _heads(node: Node, mask: Value | None) -> Heads | None:
    """The shapes of the node; None for dtypes that these kernels do not support, for grouped heads and windows, which a
    pass replaces, and for a bias, which only a GPU's nodes have."""
    q, _, v = node.input_types[:3]
    if q.dtype not in (DType.F32, DType.F64) or not is_plain(node) or bias_of(node) is not None:
        return None
    *batch, queries, features = q.ints
    keys, values = v.ints[-2:]
    strides = None if mask is None else broadcast_strides(mask.type.ints, (*batch, queries, keys))
    causal, scale = bool_attr(node.attrs, "causal"), float_attr(node.attrs, "scale")
    return Heads(q.dtype, tuple(batch), queries, keys, features, values, causal, scale, strides)


def _packed(source: Value, number: int) -> tuple[Launch, Scratch]:
    """Packs rows of ``[..., rows, width]`` in panels of neighbours, into a scratch block."""
    *batch, rows, width = source.type.ints
    spec = Pack(
        source.type.dtype,
        ((math.prod(batch), rows * width),),
        (rows, width),
        ((width, 1),),
        0,
        PANEL * lanes_of(source.type.dtype),
    )
    block = Scratch(number, spec.elements * source.type.dtype.itemsize)
    return Launch(spec, (source,), (block,)), block


@lowers("sdpa", target="cpu")
def sdpa(node: Node) -> list[Launch] | None:
    q, k, v, *mask = node.inputs
    heads = _heads(node, mask[0] if mask else None)
    if heads is None or not heads.values:
        return None
    pack, keys = _packed(k, 0)
    return [pack, Launch(Attention(heads), (q, keys, v, *mask), node.outputs)] if heads.groups else []


@lowers("sdpa_grad", target="cpu")
def sdpa_grad(node: Node) -> list[Launch] | None:
    q, k, v, y, lse, dy, *mask = node.inputs
    heads = _heads(node, mask[0] if mask else None)
    if heads is None or not heads.values:
        return None
    dtype, [dq, dk, dv] = heads.dtype, node.outputs
    if not heads.groups:
        return []
    if not heads.queries:
        return [Launch(Fill(dtype, math.prod(x.type.ints)), (), (x,)) for x in (dk, dv)]
    (pack, keys), (pack_values, values) = _packed(k, 0), _packed(v, 1)
    inner = Scratch(2, lse.type.bytes)
    spec = AttentionGrad(heads)
    found = [pack, pack_values, Launch(_row_sums(y, dy), (y, dy), (inner,))]
    size = math.prod(q.type.ints)
    sums: Value | Scratch = dq
    if spec.parts > 1:
        sums = Scratch(3, spec.parts * q.type.bytes)
        found.append(Launch(Fill(dtype, spec.parts * size), (), (sums,)))
    found.append(Launch(spec, (q, k, lse, inner, dy, keys, values, *mask), (sums, dk, dv)))
    if spec.parts > 1:
        found.append(Launch(Combine(dtype, spec.parts, size), (sums,), (dq,)))
    return found


def _row_sums(y: Value, dy: Value) -> object:
    """The region that sums y * dy over the last axis."""
    *outer, width = y.type.ints
    whole, dtype = dense(y.type.ints), y.type.dtype
    access = Access(dtype, whole)
    builder = RegionBuilder(outer, [width], [access, access], [Access(dtype, (*dense(outer), 0))])
    builder.element()
    total = builder.reduce("sum", builder.let(builder.input(0) * builder.input(1), dtype))
    builder.row()
    builder.store(0, total)
    return builder.region()
