"""Removes duplicate, unused and roundabout computations.

Results keep their bits with one exception: a contraction that reads a transposed operand takes a flag instead of the
transpose, and the provider decides whether it then adds in the same order.

Before::

    %1 = transpose %0 {perm=(1, 0)} : f32[4, 3]  # a forward
    %2 = transpose %1 {perm=(1, 0)} : f32[3, 4]  # b forward
    %3 = exp %2 : f32[3, 4]  # c forward
    %4 = exp %2 : f32[3, 4]  # d forward
    %5 = add %3, %4 : f32[3, 4]  # e forward

After::

    %1 = exp %0 : f32[3, 4]  # c forward
    %2 = add %1, %1 : f32[3, 4]  # e forward

One sweep in order: the rules of ``simplify_rules.py`` rewrite each node, with its inputs already simplified, until none
applies. Then the node is folded if its inputs are small constants, and then replaced by an equal earlier node. Ops are
deterministic, and random ones name their draws by an attribute, so equal op, attributes and inputs mean equal bits.
Pointwise ops between a transpose and its inverse need neither (``untransposed.py``); on a CPU a product that is only
read transposed needs none (``turned_products.py``). A widening cast comes after ops that move elements
(``late_casts.py``), on a GPU a narrowing one before them (``early_casts.py``). Nodes that no root depends on are
removed, also of the bodies of loops (``prune_loops.py``). Products leave loops that they need not be in
(``hoist_loops.py``), and on a GPU their sequences are aligned (``align_loops.py``). Inputs stay: they are the entry's
interface. Idempotent.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable
from typing import TYPE_CHECKING

from dslc.compiler.codegen.targets import traits_of
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Attr, Attrs, Graph, Node, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.scan import scan
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.lower.loops.align_loops import align_loops
from dslc.compiler.passes.lower.loops.hoist_loops import hoist_loops
from dslc.compiler.passes.lower.loops.prune_loops import prune_loops
from dslc.compiler.passes.lower.simplify.early_casts import early_casts
from dslc.compiler.passes.lower.simplify.late_casts import late_casts
from dslc.compiler.passes.lower.simplify.narrow import expanded_like, narrowed
from dslc.compiler.passes.lower.simplify.simplify_rules import rewritten
from dslc.compiler.passes.lower.simplify.turned_products import turned_products
from dslc.compiler.passes.lower.simplify.untransposed import untransposed

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

_FOLD_ELEMENTS = 4096  # larger constants are cheaper to compute at run time than to evaluate here


def simplify(program: Program, build: Build) -> Program:
    """The pass. Linear in nodes."""
    graph = simplify_graph(program.graph)
    turned = late_casts(untransposed(graph))
    turned = early_casts(turned) if traits_of(build.target).has_device_memory else turned_products(turned)
    graph = graph if turned is graph else simplify_graph(turned)
    if build.provider != "reference":
        hoisted = hoist_loops(graph)
        graph = graph if hoisted is graph else simplify_graph(hoisted)
    if traits_of(build.target).has_device_memory:
        graph = align_loops(graph)
    return dataclasses.replace(program, graph=graph)


def simplify_graph(graph: Graph) -> Graph:
    """The simplified graph; the same object if nothing changes."""
    known: dict[Hashable, Node] = {}
    updates = {value for _, value in graph.updates}
    done: set[Node] = set()

    def rule(node: Node) -> tuple[Value, ...]:
        found = simpler_of(node)
        done.update(value.producer for value in found if isinstance(value.producer, Node))
        return found

    def settled(node: Node) -> Node:
        """A node that a rule made, after the nodes that the rule made for its inputs are simplified, too."""
        new: dict[Value, Value] = {}
        for value in node.inputs:
            made = value.producer
            if isinstance(made, Node) and made not in done:
                new.update(zip(made.outputs, rule(settled(made))))
        return node.with_inputs(tuple(new.get(value, value) for value in node.inputs)) if new else node

    def simpler_of(node: Node) -> tuple[Value, ...]:
        if not node.inputs and not updates.isdisjoint(node.outputs):
            # A constant that fills a state is written in place. If shared, it would take memory and be copied.
            return node.outputs
        while True:
            better = rewritten(node) or folded(node)
            if better is None and (small := narrowed(node, lambda n: rule(n)[0])) is not None:
                [value] = rule(small)
                better = value if value.type == node.types[0] else expanded_like(value, node)
            if isinstance(better, Value):
                return (better,)
            if better is None:
                break
            node = settled(better)
        if node.phase is Phase.MIRROR:  # the second computation is intended
            return node.outputs
        return known.setdefault(_key(node), node).outputs

    simpler = prune_loops(graph).rewrite(rule)
    live = simpler.live_nodes()
    return simpler if len(live) == len(simpler.nodes) else dataclasses.replace(simpler, nodes=live)


def _key(node: Node) -> Hashable:
    return (node.op.name, node.inputs, tuple((k, attr_key(v)) for k, v in sorted(node.attrs.items())))


def attr_key(attr: Attr) -> Hashable:
    """A key that distinguishes values which Python calls equal: 0.0 and -0.0, 1, 1.0 and True."""
    if isinstance(attr, tuple):
        return tuple(attr_key(a) for a in attr)
    if isinstance(attr, float):
        return ("float", attr.hex())
    return (type(attr).__name__, attr)


def folded(node: Node) -> Node | None:
    """A ``full`` that replaces a pure node of small constants if all elements of its result are equal."""
    if not node.inputs or node.op.random or node.op is scan or len(node.outputs) != 1:
        return None
    sources = [v.producer for v in node.inputs]
    if not all(isinstance(s, Node) and s.op.name == "full" for s in sources):
        return None
    types = (*node.input_types, *node.types)
    if any(t.dtype is DType.FLOAT or not all(isinstance(s, int) for s in t.shape) for t in types):
        return None
    if any(math.prod(t.ints) > _FOLD_ELEMENTS for t in types):
        return None
    from dslc.compiler.ops.lazy import np

    with np.errstate(all="ignore"):
        wide = [_widened(s.attrs) for s in sources if isinstance(s, Node)]
        xs = [_rounded(OPS["full"].meaning([], a)[0], t.dtype) for a, t in zip(wide, node.input_types)]
        result = _rounded(node.op.meaning(xs, _widened(node.attrs))[0], node.types[0].dtype)
    if result.size == 0:
        return None
    first = result.reshape(-1)[0]
    if result.tobytes() != first.tobytes() * result.size:
        return None
    value = first.item()
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return None  # `nan` does not say which bits the nan has
        value = str(value)
    if isinstance(value, int) and value > DType.I64.limits[1]:
        return None  # attributes have 64 bits and a sign
    type_ = node.types[0]
    return Builder().at(node, node.phase).node(OPS["full"], value=value, dtype=type_.dtype, shape=type_.shape)


def _widened(attrs: Attrs) -> dict[str, object]:
    """Attributes as ``meaning`` takes them, with f32 for 16-bit floats, since ops compute these in f32."""
    return {k: "f32" if v in ("bf16", "f16") else v for k, v in plain(attrs).items()}


def _rounded(x: Array, dtype: DType) -> Array:
    """Rounds to the nearest values of ``dtype``, ties to even; 16-bit floats are returned as f32."""
    from dslc.compiler.ops.lazy import np

    if dtype is DType.F16:
        return x.astype(np.float16).astype(np.float32)
    if dtype is not DType.BF16 or np.isnan(x).any():
        return x
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).astype(np.uint32).view(np.float32)


def plain(attrs: Attrs) -> dict[str, object]:
    """Attributes as ``meaning`` takes them: dtypes by name."""
    return {k: _plain(v) for k, v in attrs.items()}


def _plain(attr: Attr) -> object:
    if isinstance(attr, tuple):
        return tuple(_plain(a) for a in attr)
    return attr.value if isinstance(attr, DType) else attr
