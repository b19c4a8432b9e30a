"""The computation of a resident kernel in one step of a loop, and the loops that can be resident.

All blocks of the kernel are on the device at once. Each owns some columns of the states, of all their rows, and keeps
the columns of the matrices that make them in registers or shared memory, for all steps (Diamos et al. 2016,
"Persistent RNNs"). A step is divided into levels. A level begins with matrix products, if it has any, whose left
factors come from all blocks, so it waits for what these write; then each thread computes elements of its own. For an
LSTM: one level of a product and the gates; for its gradient: the gates' gradients, and a level of the product that
gives that of the state.

Every tensor of the body has rows and columns [B, m * H], or fewer axes of these: ``m`` groups of the width H of the
states. A thread that owns element (b, j) computes columns j, H + j, 2 * H + j, ... of row b: so a slice of whole groups
selects, and a concat of them joins, without code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import gcd
from typing import Final

from dslc.compiler.codegen.cuda.kernel_spec import Unfit
from dslc.compiler.ir.graph import Graph, Input, Node, Value
from dslc.compiler.ir.op import OPS, Builder, Pointwise
from dslc.compiler.ir.scan import Loop
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import flag_attr, int_tuple
from dslc.compiler.ops.compound.contraction import product_and_epilogue
from dslc.compiler.ops.compound.fused import expanded, is_elementwise, results_of, steps_of
from dslc.compiler.ops.compound.fused_stack import fused_stack

_KEPT: Final = (DType.F32, DType.BF16, DType.F16)


@dataclass(frozen=True)
class Product:
    """``left`` [B, K] by the constant ``right``; ``turned``: that is [N, K], else [K, N]."""

    node: Node
    left: Value
    right: Input
    turned: bool

    @property
    def terms(self) -> int:
        return self.left.type.ints[1]


@dataclass
class Cell:
    """A step. ``nodes``: those that compute, ops without epilogues and bodies, in order. ``level``: of each value.
    ``products``: in order. ``shared``: the values that blocks exchange, the left factors."""

    loop: Loop
    graph: Graph
    rows: int
    width: int
    nodes: list[Node] = field(default_factory=list)
    level: dict[Value, int] = field(default_factory=dict)
    products: dict[Value, Product] = field(default_factory=dict)
    shared: list[Value] = field(default_factory=list)

    @property
    def factor(self) -> DType:
        """The dtype of all factors."""
        return next(iter(self.products.values())).left.type.dtype

    @property
    def tf32(self) -> bool:
        """Whether factors in f32 are rounded to TF32."""
        return flag_attr(next(iter(self.products.values())).node.attrs, "tf32")

    @property
    def levels(self) -> int:
        """The number of levels of a step."""
        return 1 + max(self.level.values(), default=0)

    @property
    def exchanges(self) -> int:
        """How often in a step blocks wait for one another."""
        return len({self.level[value] for value in self.products})

    @property
    def weights(self) -> set[Input]:
        """The constants that only products read."""
        read = {v for node in self.nodes if node.out not in self.products for v in node.inputs}
        return {p.right for p in self.products.values() if p.right.value not in read}

    def is_carry(self, value: Value) -> bool:
        """Whether a value is a carry as a step finds it."""
        return any(value is source.value for source in self.loop.carry_inputs)

    def groups(self, type: TensorType) -> int:
        """How many columns of a tensor a thread has; 1 for one that is the same along columns."""
        return max(1, type.ints[-1] // self.width) if type.rank and type.ints[-1] != 1 else 1


def cell_of(node: Node) -> Cell:
    """The step of a loop, from the loop's node whose sizes are ints. Raises Unfit."""
    loop = Loop.of(node)
    if not loop.carries:
        raise Unfit("it carries nothing")
    shapes = [v.type.ints for v in loop.carries]
    if any(len(shape) != 2 for shape in shapes) or len({shape[0] for shape in shapes}) != 1:
        raise Unfit("its carries are not all matrices of equally many rows")
    width = reduce(gcd, (shape[1] for shape in shapes))
    if width < 2 or width != min(shape[1] for shape in shapes):
        raise Unfit("the columns of its carries are no multiples of the least ones")
    graph, nodes = flattened(loop.graph)
    flat = Loop(graph, loop.consts, loop.carries, loop.sequences, loop.count, loop.reverse)
    cell = Cell(flat, graph, shapes[0][0], width)
    for source in graph.inputs:
        cell.level[source.value] = 0
    constants = {source.value: source for source in flat.const_inputs}
    for each in nodes:
        _add(cell, each, constants)
    if not cell.products:
        raise Unfit("it has no product of a state and a matrix")
    if len({(p.left.type.dtype, flag_attr(p.node.attrs, "tf32")) for p in cell.products.values()}) > 1:
        raise Unfit("its products have factors of several dtypes")
    for value in (*(v for _, v in graph.updates), *graph.outputs.values()):
        _check(cell, value.type)
    for source in graph.inputs:
        if source not in cell.weights:
            _check(cell, source.value.type)
    return cell


def flattened(graph: Graph) -> tuple[Graph, list[Node]]:
    """The body without fused nodes and epilogues, and its nodes in order."""
    new: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        current = node.reading(new)
        if current.op.name == "contraction":
            first, last = product_and_epilogue(current)
            nodes.append(first)
            steps = expanded(last.inputs, last.attrs)
            results: Sequence[Value] = (steps[-1].out,)
        elif is_elementwise(current.op):
            steps = steps_of(current)
            values = [*current.inputs, *(step.out for step in steps)]
            results = [values[i] for i in results_of(current.attrs, len(values))]
            if current.op is fused_stack:
                steps = [*steps, _joined(current, results)]
                results = steps[-1].outputs
        else:
            steps, results = [current], current.outputs
        nodes += steps
        new.update((old, v) for old, v in zip(node.outputs, results) if old is not v)
    outputs = {name: new.get(v, v) for name, v in graph.outputs.items()}
    updates = tuple((source, new.get(v, v)) for source, v in graph.updates)
    return Graph(graph.inputs, tuple(nodes), outputs, updates), nodes


def _joined(node: Node, parts: Sequence[Value]) -> Node:
    """The parts of a ``fused_stack`` as columns of one matrix, which a reshape of its result is. Raises Unfit."""
    if node.attrs["axis"] != 1 or "perm" in node.attrs:
        raise Unfit("it joins tensors other than along columns")
    return Builder().at(node, node.phase).node(OPS["concat"], *parts, axis=1)


def _add(cell: Cell, node: Node, constants: Mapping[Value, Input]) -> None:
    if len(node.outputs) != 1:
        raise Unfit(f"it has a `{node.op.name}`")
    level = max((cell.level[v] for v in node.inputs), default=0)
    if node.op.name == "matmul":
        product = _product(node, constants)
        if product.left not in cell.shared:
            cell.shared.append(product.left)
        cell.products[node.out] = product
        level += 0 if cell.is_carry(product.left) else 1
    elif node.op.name == "slice":
        _check_slice(cell, node)
    elif node.op.name == "concat":
        if node.attrs["axis"] not in (1, -1) or any(t.rank != 2 for t in node.input_types):
            raise Unfit("it joins tensors along rows")
    elif node.op.name == "reshape":
        if node.types[0].shape != node.input_types[0].shape:
            raise Unfit("it has a `reshape`")
    elif node.op.name != "full" and (not isinstance(node.op, Pointwise) or node.op.random):
        raise Unfit(f"it has a `{node.op.name}`")
    _check(cell, node.types[0])
    cell.level[node.out] = level
    cell.nodes.append(node)


def _product(node: Node, constants: Mapping[Value, Input]) -> Product:
    left, right = node.inputs
    if left.type.rank != 2 or right.type.rank != 2 or node.attrs["transpose_a"]:
        raise Unfit("it has a product of other than matrices")
    if right not in constants:
        raise Unfit("it has a product of two tensors of a step")
    if left.type.dtype not in _KEPT:
        raise Unfit(f"its products have factors in {left.type.dtype}")
    made = left.producer
    if left in constants or (isinstance(made, Input) and made.name.startswith("x.")):
        raise Unfit("it has a product that needs no state")
    return Product(node, left, constants[right], bool(node.attrs["transpose_b"]))


def _check_slice(cell: Cell, node: Node) -> None:
    starts, stops, steps = (int_tuple(node.attrs, name) for name in ("starts", "stops", "steps"))
    [whole] = node.input_types
    if set(steps) != {1} or whole.rank != 2 or (starts[0], stops[0]) != (0, whole.ints[0]):
        raise Unfit("it takes parts of rows")
    if starts[1] % cell.width or stops[1] % cell.width:
        raise Unfit("it takes parts of a state's columns")


def _check(cell: Cell, type: TensorType) -> None:
    """Raises Unfit for a tensor that is not of rows and groups of columns."""
    if type.dtype not in (*_KEPT, DType.B1):
        raise Unfit(f"it computes in {type.dtype}")
    shape = type.ints
    rows = shape[-2] if len(shape) > 1 else 1
    columns = shape[-1] if shape else 1
    if len(shape) > 2 or rows not in (1, cell.rows) or (columns != 1 and columns % cell.width):
        raise Unfit(f"it has a tensor {type}")
