"""Evaluation over many batches: each reduction over the batch dim is kept as (sum, count) or as an extreme.

A loss or metric is an expression over reductions. ``split_at_batch`` splits it there: the first graph computes the
reductions of one batch, the second evaluates the expression after all batches are combined.

Before::

    loss = mean(rec + beta * kl)      dice = 2 * sum(p * t) / (sum(p) + sum(t))

After: step gives ``partial.0, count.0`` (mean), ``partial.1 .. partial.3`` (sums); finish reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.sizes import Dim, Poly, Size, product
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.compound.gradient import gradient

#: reductions that combine over batches, and how the host combines their partial values
COMBINE = {"mean": "sum", "sum": "sum", "max": "max", "min": "min"}


@dataclass(frozen=True)
class _Cut:
    """A value of one batch that is combined over batches. ``count``: the divisor of the sum; None: no division."""

    partial: Value
    combine: str
    count: Size | None


def split_at_batch(graph: Graph, batch: Dim | None) -> tuple[Graph, Graph]:
    """(the graph of one batch, the graph after the last). Partial values are f64, in outputs named
    ``partial.K.sum`` (or ``.max``, ``.min``) and ``count.K``; the second graph reads ``partial.K`` and ``count.K``.

    A value that loses the batch axis by anything but a reduction (``output[0]``) is averaged over the rows, and so is a
    gradient with respect to a tensor without this axis.
    """
    depends = _data_values(graph)
    cuts: dict[Value, _Cut] = {}
    for root in graph.outputs.values():
        _find_cuts(root, depends, batch, cuts)
    step_outputs: dict[str, Value] = {}
    new: dict[Value, Value] = {}
    inputs: list[Input] = []
    for k, (value, cut) in enumerate(cuts.items()):
        b = Builder(name=f"partial.{k}", span=getattr(value.producer, "span", None))
        step_outputs[f"partial.{k}.{cut.combine}"] = b(OPS["cast"], cut.partial, dtype=DType.F64)
        total = Input(f"partial.{k}", Kind.DATA, TensorType(DType.F64, cut.partial.type.shape))
        inputs.append(total)
        combined = b(OPS["cast"], total.value, dtype=DType.FLOAT)
        if cut.count is not None:
            attr = cut.count
            step_outputs[f"count.{k}"] = b(OPS["full"], value=attr, dtype=DType.F64, shape=())
            count = Input(f"count.{k}", Kind.DATA, TensorType(DType.F64, ()))
            inputs.append(count)
            combined = b(OPS["div"], combined, b(OPS["cast"], count.value, dtype=DType.FLOAT))
        if value.type.dtype is not DType.FLOAT:  # its consumers expect integers
            combined = b(OPS["cast"], combined, dtype=value.type.dtype)
        new[value] = combined
    roots = [*step_outputs.values(), *(v for _, v in graph.updates)]
    step = Graph(graph.inputs, order(roots), step_outputs, graph.updates)
    return step, _finish(graph, new, tuple(inputs))


def _data_values(graph: Graph) -> set[Value]:
    """Every value that depends on a data input, or on a state, which a batch changes."""
    found = {i.value for i in graph.inputs if i.kind in (Kind.DATA, Kind.STATE)}
    for node in graph.nodes:
        if any(v in found for v in node.inputs):
            found.update(node.outputs)
    return found


def _has_batch(size: Size, batch: Dim | None) -> bool:
    return batch is not None and isinstance(size, Poly) and batch in size.dims


def _find_cuts(root: Value, depends: set[Value], batch: Dim | None, cuts: dict[Value, _Cut]) -> None:
    stack, seen = [root], set()
    while stack:
        value = stack.pop()
        if value in cuts or value in seen or value not in depends:
            continue
        seen.add(value)
        cut = _cut_at(value, depends, batch)
        if cut is not None:
            cuts[value] = cut
        else:
            assert isinstance(value.producer, Node)
            stack.extend(reversed(value.producer.inputs))


def _cut_at(value: Value, depends: set[Value], batch: Dim | None) -> _Cut | None:
    """How a value is combined over batches; None if it is computed from combined values."""
    node = value.producer
    if isinstance(node, Node):
        dependent = [v for v in node.inputs if v in depends]
        through = [v for v in dependent if any(_has_batch(s, batch) for s in v.type.shape)]
        if node.op.name in COMBINE and through:
            x = node.inputs[0]
            over = node.attrs["over"]
            assert isinstance(over, tuple)
            sizes = tuple(x.type.shape[a] for a in over if isinstance(a, int))
            if any(_has_batch(s, batch) for s in sizes):
                if node.op.name != "mean":
                    return _Cut(value, COMBINE[node.op.name], None)
                total = Builder(name=node.name, span=node.span)(OPS["sum"], x, over=over, keep=node.attrs["keep"])
                return _Cut(total, "sum", product(sizes))
        of_inputs = any(isinstance(v.producer, Input) for v in dependent)
        if not through and batch is not None and not of_inputs and node.op is not gradient:
            return None
    rows: Size = 1 if batch is None else Poly((((batch,), 1),))
    b = Builder(name=getattr(node, "name", ""), span=getattr(node, "span", None))
    weight = b(OPS["full"], value=rows, dtype=DType.FLOAT, shape=())
    number = value if value.type.dtype is DType.FLOAT else b(OPS["cast"], value, dtype=DType.FLOAT)
    return _Cut(b(OPS["mul"], number, weight), "sum", rows)


def _finish(graph: Graph, new: dict[Value, Value], inputs: tuple[Input, ...]) -> Graph:
    """The nodes after the cuts, reading the combined values."""
    mapped = dict(new)
    needed = _behind(graph, set(new))
    for node in needed:
        fresh = node.reading(mapped)
        mapped.update(zip(node.outputs, fresh.outputs))
    outputs = {name: mapped.get(v, v) for name, v in graph.outputs.items()}
    rest = tuple(i for i in graph.inputs if i.kind not in (Kind.DATA, Kind.STATE))
    return Graph((*inputs, *rest), order(outputs.values()), outputs)


def _behind(graph: Graph, cuts: set[Value]) -> list[Node]:
    """The nodes between the cuts and the outputs, in order."""
    wanted = {v.producer for v in graph.outputs.values() if v not in cuts and isinstance(v.producer, Node)}
    found: list[Node] = []
    for node in reversed(graph.nodes):
        if node in wanted:
            found.append(node)
            wanted.update(v.producer for v in node.inputs if v not in cuts and isinstance(v.producer, Node))
    return found[::-1]
