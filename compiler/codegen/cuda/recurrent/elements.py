"""The text of the elements that a thread computes: a value is an array ``v[EACH][groups]`` in registers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dslc.compiler.codegen.cuda.recurrent.cell import Cell
from dslc.compiler.codegen.cuda.recurrent.division import Division
from dslc.compiler.codegen.cuda.recurrent.formulas import formula, literal
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.ir.scalar import argument
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.constants.literal import as_number


def element_type(value: Value) -> str:
    """The type in registers."""
    return "bool" if value.type.dtype is DType.B1 else "float"


class Elements:
    """``expressions``: of a value that is known, those of its groups. ``declarations``: of the arrays of a step."""

    def __init__(self, cell: Cell, division: Division) -> None:
        self.cell, self.division = cell, division
        self.expressions: dict[Value, list[str]] = {}
        self.declarations: list[str] = []
        self._products = {value: number for number, value in enumerate(cell.products)}

    def array(self, name: str, value: Value) -> str:
        """The declaration of an array of a value's elements."""
        return f"  {element_type(value)} {name}[EACH][{self.cell.groups(value.type)}];\n"

    def name(self, value: Value, array: str) -> None:
        """Makes the elements of an array those of a value."""
        self.expressions[value] = [f"{array}[e][{g}]" for g in range(self.cell.groups(value.type))]

    def computed(self, node: Node) -> Iterable[str]:
        """The lines that compute an element of a node; its expressions are then known. Slices, concats and constants
        need no lines."""
        value = node.out
        match node.op.name:
            case "slice":
                starts, stops = int_tuple(node.attrs, "starts")[1], int_tuple(node.attrs, "stops")[1]
                groups = self.expressions[node.inputs[0]]
                self.expressions[value] = groups[starts // self.cell.width : stops // self.cell.width]
            case "concat" | "reshape":
                self.expressions[value] = [each for v in node.inputs for each in self.expressions[v]]
            case "full":
                constant = _rounded(literal(as_number(node.attrs["value"])), node)
                self.expressions[value] = [constant] * self.cell.groups(value.type)
            case _:
                array = f"v{len(self.expressions)}"
                self.declarations.append(self.array(array, value))
                self.name(value, array)
                texts = self._sums(value) if value in self._products else self._formulas(node)
                for group, text in enumerate(texts):
                    yield f"      {array}[e][{group}] = {text};\n"

    def _sums(self, value: Value) -> Iterable[str]:
        """Of a product: its sums in shared memory."""
        number = self._products[value]
        node = self.cell.products[value].node
        for group in range(self.cell.groups(value.type)):
            total = f"product{number}.sum(sums + {self.division.sums[number]}, row[e], {group}, own[e])"
            yield f"in[e] ? {_rounded(total, node)} : 0.0f"

    def _formulas(self, node: Node) -> Iterable[str]:
        """Of a pointwise op."""
        assert isinstance(node.op, Pointwise)
        inputs = [self.expressions[value] for value in node.inputs]
        for group in range(self.cell.groups(node.out.type)):
            names = [_of_group(groups, group) for groups in inputs]
            tree = node.op.scalar_of(DType.F32, node.attrs, *map(argument, range(len(names))))
            yield _rounded(formula(tree, names), node)


def _of_group(groups: Sequence[str], group: int) -> str:
    """The expression for a group; one that is the same along columns serves all."""
    return groups[group] if len(groups) > 1 else groups[0]


def _rounded(text: str, node: Node) -> str:
    dtype = node.types[0].dtype
    return f"rounded_{dtype.value}({text})" if dtype.is_half else text
