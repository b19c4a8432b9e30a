"""Lowers contractions: matmul, conv and its gradients, with channels first or last.

A node of few rows has the kernel of ``few_rows.py``. Others have a direct kernel (``direct.py``), sums along lines
(``dots.py``), or tiles (``kernel.py``). Only a measured choice names another way (``variants.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final, Literal, TypeAlias

from dslc.compiler.codegen.cuda.contraction.convolution import conv, conv_dgrad, conv_wgrad
from dslc.compiler.codegen.cuda.contraction.direct import depthwise_shape, direct_launches
from dslc.compiler.codegen.cuda.contraction.dots import dots, is_dots
from dslc.compiler.codegen.cuda.contraction.epilogue import Epilogue, F32Epilogue
from dslc.compiler.codegen.cuda.contraction.few_rows import few_rows
from dslc.compiler.codegen.cuda.contraction.kernel import contract, deciding
from dslc.compiler.codegen.cuda.contraction.output import Output
from dslc.compiler.codegen.cuda.contraction.problem import Axes, Group, Problem, operand, problem
from dslc.compiler.codegen.cuda.contraction.tile_tables import Cores
from dslc.compiler.codegen.cuda.contraction.tiles import Tiling
from dslc.compiler.codegen.launch import Argument, Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import bool_attr, flag_attr
from dslc.compiler.ops.compound.contraction import product_and_epilogue


def matmul(node: Node) -> list[Problem]:
    """The problem of a product of matrices. Leading axes broadcast. Each is an axis of z; if b is a single matrix, the
    rows of the whole stack form one long m."""
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


#: How a contraction is computed: in tiles of a given size, by the kernel for few channels, or, None, by the rules.
Way: TypeAlias = Tiling | Literal["few channels"] | None
FEW_CHANNELS: Final = "few channels"

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
def product(node: Node, way: Way = None) -> list[Launch]:
    """The launches of a product or convolution without an epilogue."""
    few = None if isinstance(way, Tiling) else few_rows(node)
    if few is not None:
        return [Launch(few, node.inputs, node.outputs)]
    return _launches(node, Output(node.outputs[0]), way)


@lowers("contraction", target="cuda")
def contraction(node: Node, way: Way = None) -> list[Launch]:
    """The launches of a product with an epilogue, which the kernel that stores the sums computes: of 16 bits in f32 and
    rounded once, else in the dtypes of its steps. A launch of its own computes the epilogue if C++ does not support its
    ops, or not exactly, or if nothing is summed."""
    first, finish = product_and_epilogue(node)
    few = None if isinstance(way, Tiling) else few_rows(first, finish)
    if few is not None:
        return [Launch(few, node.inputs, node.outputs)]
    output = Output(node.outputs[0], others=node.inputs[2:])
    same = first.input_types[0].dtype is first.types[0].dtype  # else tensor cores sum in f32, and have no epilogue
    if same and not is_dots(first):
        kind = F32Epilogue if first.types[0].dtype.itemsize == 2 else Epilogue
        output = replace(output, epilogue=kind.of(finish))
    if output.epilogue is not None and not isinstance(way, Tiling):
        found = direct_launches(first, output, few_channels=way == FEW_CHANNELS)
        if found is not None:
            return found
    problems = PROBLEMS[first.op.name](first)
    if output.epilogue is not None and any(p.count("k") for p in problems):
        return tiled_launches(problems, node.inputs[:2], output, flag_attr(node.attrs, "tf32"), _tiling_of(way))
    whole = Scratch(0, first.types[0].bytes)
    [steps] = pointwise.pointwise(finish)
    after = Launch(steps.spec, (whole, *output.others), node.outputs)
    return [*_launches(first, Output(whole, block=1), way), after]


def first_of(node: Node) -> Node:
    """The product or convolution of a node that may have an epilogue."""
    return product_and_epilogue(node)[0] if node.op.name == "contraction" else node


def tiled_problem(node: Node) -> tuple[Problem, Cores] | None:
    """The problem that decides the tiling of a node's kernels, and the tensor cores that they use; None if the node is
    no contraction, if it is depthwise, or if nothing is summed."""
    if node.op.name not in (*PROBLEMS, "contraction"):
        return None
    first = first_of(node)
    if is_dots(first) or depthwise_shape(first) is not None:
        return None
    problems = PROBLEMS[first.op.name](first)
    if not any(p.count("k") for p in problems):
        return None
    return deciding(problems, flag_attr(node.attrs, "tf32"))[:2]


def _tiling_of(way: Way) -> Tiling | None:
    return way if isinstance(way, Tiling) else None


def _launches(node: Node, output: Output, way: Way) -> list[Launch]:
    """The launches of a product or convolution of many rows, without an epilogue. Empty sums become zeros."""
    if not isinstance(way, Tiling):
        found = direct_launches(node, output, few_channels=way == FEW_CHANNELS)
        if found is not None:
            return found
    if is_dots(node):
        return [dots(node, output.result)]
    problems = PROBLEMS[node.op.name](node)
    if not any(p.count("k") for p in problems):
        return [Launch(x.spec, (), (output.result,)) for x in pointwise.filled(node, 0.0)]
    return tiled_launches(problems, node.inputs[:2], output, flag_attr(node.attrs, "tf32"), _tiling_of(way))


def tiled_launches(
    problems: Sequence[Problem],
    factors: Sequence[Argument],
    output: Output,
    tf32: bool = False,
    tiling: Tiling | None = None,
) -> list[Launch]:
    """The launches of contractions of two arguments in tiles. ``tiling``: by default the one with the least modelled
    time."""
    specs, swapped = contract(problems, output.epilogue, tf32, tiling)
    reads = tuple(reversed(factors) if swapped else factors)
    split, c = specs[0].problem.split, problems[0].c
    if split == 1:
        return [Launch(spec, (*reads, *output.others), (output.result,)) for spec in specs]
    parts, whole = output.in_parts(c.dtype, c.elements, split)
    return [*(Launch(spec, reads, (parts,)) for spec in specs), whole]
