"""Turns grouped heads and windows of attention into reshapes and masks, where no kernel in tiles computes them.

Before, on the CPU::

    %3, %4 = sdpa %q, %k, %v {causal=True, window=4, ...} : f32[8, 6, 64, 32], f32[8, 6, 64]  # with k f32[8, 2, 64, 32]

After, in short::

    %1 = reshape %q : f32[8, 2, 192, 32]  # three heads one after the other
    %2 = the mask of the window, three times : b1[1, 192, 64]
    %3, %4 = sdpa %1, %k, %v, %2 {causal=False, ...} : f32[8, 2, 192, 32], f32[8, 2, 192]
    %5, %6 = reshapes of %3, %4

``fits_tiles`` is the one rule for which attention is computed in tiles: those kernels read grouped heads where they
lie, and leave out tiles outside of a window. Where values have another number of features than keys, features of
zero are added (``attention_widths.py``). If the precision is tf32, attention is marked so here, as the rule asks for
it. Results are the same up to the order of sums. Linear in nodes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dslc.compiler.codegen.targets import traits_of
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Attr, Graph, Node, Value
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ops.attrs import flag_attr, float_attr
from dslc.compiler.ops.compound.strided_attention import fits_tiles, terms_of
from dslc.compiler.ops.products.attention import sdpa, sdpa_grad
from dslc.compiler.ops.products.attention_terms import is_plain, plain
from dslc.compiler.passes.lower.attention_widths import in_tiles
from dslc.compiler.passes.rebuild import reading
from dslc.compiler.passes.rounding import tf32_rounded


def attention_forms(program: Program, build: Build) -> Program:
    """The pass; the same program if there is nothing to do."""
    tiles = traits_of(build.target).has_tensor_cores

    def rule(node: Node) -> Sequence[Value] | Node | None:
        if node.op not in (sdpa, sdpa_grad):
            return None
        found = tf32_rounded(node) if build.precision.tf32 else node
        if tiles and (wide := in_tiles(found)) is not None:
            return wide
        if is_plain(found) or (tiles and fits_tiles(found)):
            return None if found is node else found
        return _plain(found, Builder().at(node, node.phase))

    graph = _needed(program.graph).rewrite(rule)
    return program if graph is program.graph else dataclasses.replace(program, graph=graph)


def _needed(graph: Graph) -> Graph:
    """The graph without gradients of biases that nothing reads."""
    read = graph.readers().keys() | {*graph.roots}
    instead: dict[Value, Value] = {}
    for node in graph.nodes:
        if node.op is sdpa_grad and node.outputs[3:] and read.isdisjoint(node.outputs[3:]):
            attrs = {name: value for name, value in node.attrs.items() if name != "bias"}
            found = Builder().at(node, node.phase).node(sdpa_grad, *node.inputs, **attrs)
            instead.update(zip(node.outputs, found.outputs))
    return reading(graph, instead)


def _plain(node: Node, b: Builder) -> Sequence[Value]:
    """The outputs of the same attention without groups and windows."""
    q, k, v, *given = node.inputs
    heads, mask, bias, causal = plain(b, q, k, terms_of(node), node.attrs)
    assert bias is None or heads.share == 1, "a bias is for heads of their own"
    rows = [heads.joined(x) for x in (() if node.op is sdpa else given[:3])]  # y, lse and dy of a gradient
    more = [x for x in (mask, bias) if x is not None]
    attrs: dict[str, Attr] = {"causal": causal, "scale": float_attr(node.attrs, "scale")}
    attrs |= {name: True for name in ("tf32", "bias") if flag_attr(node.attrs, name)}
    found = b.node(node.op, heads.joined(q), k, v, *rows, *more, **attrs).outputs
    if node.op is sdpa:
        return [heads.apart(x) for x in found]
    return [heads.apart(found[0]), *found[1:]]
