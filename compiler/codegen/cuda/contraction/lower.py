"""Lowers contractions: matmul, conv and its gradients, with channels first or last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.contraction.convolution import conv, conv_dgrad, conv_wgrad
from dslc.compiler.codegen.cuda.contraction.direct import depthwise, direct
from dslc.compiler.codegen.cuda.contraction.dots import dots, is_dots
from dslc.compiler.codegen.cuda.contraction.epilogue import Epilogue, F32Epilogue
from dslc.compiler.codegen.cuda.contraction.few_rows import few_rows
from dslc.compiler.codegen.cuda.contraction.kernel import AddParts, contract, deciding
from dslc.compiler.codegen.cuda.contraction.problem import Axes, Group, Problem, operand, problem
from dslc.compiler.codegen.cuda.contraction.tiles import Cores, Tiling
from dslc.compiler.codegen.launch import Argument, Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import bool_attr, flag_attr
from dslc.compiler.ops.compound.contraction import product_and_epilogue


def matmul(node: Node) -> list[Problem]:
    """Leading axes broadcast. Each is an axis of z; if b is a single matrix, the rows of the whole stack form one long
    m."""
    [a, b], [c] = node.input_types, node.types
    ta, tb = bool_attr(node.attrs, "transpose_a"), bool_attr(node.attrs, "transpose_b")
    stack = [(f"z{i}", size) for i, size in enumerate(c.ints[:-2])]
    rows, cols = c.ints[-2:]
    inner = a.ints[-2] if ta else a.ints[-1]
    a_strides = dict(_stack(a, len(stack)))
    b_strides = dict(_stack(b, len(stack)))
    c_strides = dict(_stack(c, len(stack)))
    a_strides |= {"row": 1, "sum": rows} if ta else {"row": inner, "sum": 1}
    b_strides |= {"sum": 1, "col": inner} if tb else {"sum": cols, "col": 1}
    c_strides |= {"row": cols, "col": 1}
    axes: dict[Group, Axes] = {"z": stack, "m": [("row", rows)], "n": [("col", cols)], "k": [("sum", inner)]}
    if b.rank == 2 and not ta:
        axes |= {"z": [], "m": [*stack, ("row", rows)]}
    return [problem(axes, operand(a, a_strides), operand(b, b_strides), operand(c, c_strides))]


def _stack(t: TensorType, rank: int) -> list[tuple[str, int]]:
    """Strides of the leading axes, omitting those that broadcast."""
    lead = t.ints[:-2]
    found, step = [], prod(t.ints[-2:])
    for place in range(len(lead) - 1, -1, -1):
        if lead[place] != 1:
            found.append((f"z{place + rank - len(lead)}", step))
        step *= lead[place]
    return found


#: The problems that together compute a node's result; ``a`` is its first input.
PROBLEMS: Final[Mapping[str, Callable[[Node], list[Problem]]]] = {
    "matmul": matmul,
    "conv": conv,
    "conv_dgrad": conv_dgrad,
    "conv_wgrad": conv_wgrad,
    "conv_last": conv,
    "conv_dgrad_last": conv_dgrad,
    "conv_wgrad_last": conv_wgrad,
}


@lowers(*PROBLEMS, target="cuda")
def product(node: Node, tiling: Tiling | None = None, forced: bool = False) -> list[Launch]:
    """``tiling``: by default the best one, or kernels without tiles; ``forced``: those for few channels."""
    few = few_rows(node) if tiling is None else None
    if few is not None:
        return [Launch(few, node.inputs, node.outputs)]
    return _product(node, node.outputs[0], 0, tiling, forced)


@lowers("contraction", target="cuda")
def contraction(node: Node, tiling: Tiling | None = None, forced: bool = False) -> list[Launch]:
    """Fuses the epilogue into the kernel that stores the sums: of 16 bits in f32 and rounded once, else in the dtypes
    of its steps. A launch of its own computes it if C++ does not support its ops, or not exactly, or if nothing is
    summed."""
    first, finish = product_and_epilogue(node)
    few = few_rows(first, finish) if tiling is None else None
    if few is not None:
        return [Launch(few, node.inputs, node.outputs)]
    same = first.input_types[0].dtype is first.types[0].dtype  # else tensor cores sum in f32, and have no epilogue
    others, epilogue = node.inputs[2:], None
    if same and not is_dots(first):
        kind = F32Epilogue if first.types[0].dtype.itemsize == 2 else Epilogue
        epilogue = kind.of(finish)
    if epilogue is not None and tiling is None:
        found = direct(first, node.outputs[0], 0, epilogue, others, forced)
        if found is not None:
            return found
    problems = PROBLEMS[first.op.name](first)
    if epilogue is not None and any(p.count("k") for p in problems):
        tf32 = flag_attr(node.attrs, "tf32")
        return launched(problems, node.inputs[:2], node.outputs[0], 0, tf32, epilogue, others, tiling)
    whole = Scratch(0, first.types[0].bytes)
    [steps] = pointwise.pointwise(finish)
    return [*_product(first, whole, 1, tiling, forced), Launch(steps.spec, (whole, *others), node.outputs)]


def first_of(node: Node) -> Node:
    """The product or convolution of a node that may have an epilogue."""
    return product_and_epilogue(node)[0] if node.op.name == "contraction" else node


def tiled(node: Node) -> tuple[Problem, Cores] | None:
    """The problem that decides the tiling of a node's kernels, and the tensor cores that they use; None if the node is
    no contraction, if it is depthwise, or if nothing is summed."""
    if node.op.name not in (*PROBLEMS, "contraction"):
        return None
    first = first_of(node)
    if is_dots(first) or depthwise(first) is not None:
        return None
    problems = PROBLEMS[first.op.name](first)
    if not any(p.count("k") for p in problems):
        return None
    return deciding(problems, flag_attr(node.attrs, "tf32"))[:2]


def _product(node: Node, result: Argument, block: int, tiling: Tiling | None, forced: bool = False) -> list[Launch]:
    """Empty sums become zeros."""
    found = direct(node, result, block, forced=forced) if tiling is None else None
    if found is not None:
        return found
    if is_dots(node):
        return [dots(node, result)]
    problems = PROBLEMS[node.op.name](node)
    if not any(p.count("k") for p in problems):
        return [Launch(x.spec, (), (result,)) for x in pointwise.filled(node, 0.0)]
    return launched(problems, node.inputs[:2], result, block, flag_attr(node.attrs, "tf32"), tiling=tiling)


def launched(
    problems: Sequence[Problem],
    factors: Sequence[Argument],
    c: Argument,
    block: int,
    tf32: bool = False,
    epilogue: Epilogue | None = None,
    others: Sequence[Argument] = (),
    tiling: Tiling | None = None,
) -> list[Launch]:
    """The launches of contractions of two arguments. If they are split, the parts go to scratch block ``block``.
    ``epilogue``: applied to the sums and ``others``. ``tiling``: by default the one with the least modelled time."""
    out = problems[0].c.dtype
    specs, swapped = contract(problems, epilogue, tf32, tiling)
    reads = tuple(reversed(factors) if swapped else factors)
    split, kept, elements = specs[0].problem.split, specs[0].problem.c.dtype, problems[0].c.elements
    if split == 1:
        return [Launch(spec, (*reads, *others), (c,)) for spec in specs]
    parts = Scratch(block, split * elements * kept.itemsize)
    whole = Launch(AddParts(out, elements, split, epilogue), (parts, *others), (c,))
    return [*(Launch(spec, reads, (parts,)) for spec in specs), whole]
