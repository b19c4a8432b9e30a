"""Evaluates expressions: static values are computed immediately, tensors become nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.check import arithmetic
from dslc.compiler.check.calls.convert import NO_SIZE, is_scalar
from dslc.compiler.check.calls.equal_sizes import of_tensors
from dslc.compiler.check.conversions import mixed, with_cast
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.lookup import lookup
from dslc.compiler.check.training.parameters import dotted, named
from dslc.compiler.check.values import Layer, Problem, Static, kind_of
from dslc.compiler.ir.function import FUNCTIONS
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import OPS, Mismatch
from dslc.compiler.ir.sizes import Poly, Size, SizeLimit, bounds
from dslc.compiler.ir.types import DType
from dslc.dsl import syntax
from dslc.dsl.diagnostics import Label
from dslc.dsl.other_calls import field_hint
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander

OPERATORS: Final = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floordiv", "%": "mod", "^": "power", "@": "matmul",
    "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
}  # fmt: skip
MAX_DEPTH: Final = 4000
#: Steps are evaluated expressions, iterations of loops, and a quarter of the created elements of lists and strings. So
#: many are allowed in addition to those granted per operation: half a million take about a second.
MAX_STEPS: Final = 500_000
STEPS_OF_AN_OP: Final = 20


class Evaluator:
    """Evaluates expressions for an Expander, which holds nodes, parameters and reports."""

    def __init__(self, expander: Expander) -> None:
        self.expander = expander
        self.depth = 0
        self.steps = 0
        self._rules: dict[type[Any], Callable[[Any, Frame], Static]] = {
            syntax.Name: self._name,
            syntax.Number: self._number,
            syntax.String: lambda e, f: e.value,
            syntax.Bool: lambda e, f: e.value,
            syntax.Tuple: lambda e, f: tuple(self(i, f) for i in e.items),
            syntax.List: lambda e, f: [self(i, f) for i in e.items],
            syntax.Comprehension: lambda e, f: self.expander.statements.comprehension(e, f),
            syntax.Call: lambda e, f: self.expander.calls.call(e, f),
            syntax.Pipe: lambda e, f: self.expander.calls.pipe(e, f),
            syntax.Field: self._field,
            syntax.Index: lambda e, f: self.expander.indexing(e, f),
            syntax.Unary: self._unary,
            syntax.Binary: self._binary,
            syntax.Choose: self._choose,
            syntax.Range: self._range,
            syntax.Slice: self._slice,
            syntax.Rest: self._slice,
        }

    def __call__(self, expr: syntax.Expr, frame: Frame) -> Static:
        if self.depth > MAX_DEPTH:
            raise Problem("E0004", "blocks and expressions are nested too deeply here", expr.span, "too deep")
        self.spend(1, expr.span)
        self.depth += 1
        try:
            return self._rules[type(expr)](expr, frame)
        except SizeLimit as limit:
            raise arithmetic.too_complex(limit, expr.span) from None
        finally:
            self.depth -= 1

    def spend(self, steps: int, span: Span) -> None:
        """Counts work on static values, which creates no operations and so meets no other limit; E0006."""
        self.steps += steps
        if self.steps > MAX_STEPS + STEPS_OF_AN_OP * self.expander.count:
            title = f"more than {MAX_STEPS:,} evaluation steps that produce no operation"
            help = "`for` is unrolled: use fewer iterations or shorter lists"
            raise Problem("E0006", title, span, "the limit is reached here", help=help, final=True)

    def size(self, expr: syntax.Expr, frame: Frame) -> Size:
        """The value of an expression that must be a size."""
        return as_size(self(expr, frame), expr)

    def shape_size(self, expr: syntax.Expr, frame: Frame) -> Size:
        """A size in a signature; there `/` must divide exactly."""
        if isinstance(expr, syntax.Rest):
            help = "write each size"
            raise Problem("E0307", "`...` stands only in the signature of a block", expr.span, "any axes", help=help)
        if isinstance(expr, syntax.Binary) and expr.op == "/":
            return arithmetic.divide(self.shape_size(expr.left, frame), self.shape_size(expr.right, frame), expr.span)
        if isinstance(expr, syntax.Binary) and expr.op in ("+", "-", "*"):
            left, right = self.shape_size(expr.left, frame), self.shape_size(expr.right, frame)
            value = arithmetic.binary(expr.op, left, right, expr.span)
            assert isinstance(value, (int, Poly))
            return value
        return self.size(expr, frame)

    def truth(self, expr: syntax.Expr, frame: Frame, operator: str | None = None) -> bool:
        """A condition, which must have a static value; or a side of ``operator``, `and`, `or` or `not`."""
        value = self(expr, frame)
        if isinstance(value, bool):
            return value
        use = "to choose between tensors, use `where(condition, a, b)`"
        if operator is not None:
            use = f"of tensors, use `logical_{operator}({'a' if operator == 'not' else 'a, b'})`"
        help = use if isinstance(value, Value) else None
        raise Problem("E0202", f"a condition is a bool, this is {kind_of(value)}", expr.span, "not a bool", help=help)

    # --- one rule per kind of expression -------------------------------------------------------------------

    def _name(self, expr: syntax.Name, frame: Frame) -> Static:
        found = named(expr, frame, self.expander.tensors)
        return lookup(expr.name, expr.span, frame, self.expander.reports) if found is None else found

    def _number(self, expr: syntax.Number, frame: Frame) -> Static:
        if expr.unit is not None:
            raise Problem("E0202", f"a number with the unit `{expr.unit}` is not allowed here", expr.span, "has a unit")
        return expr.value

    def _field(self, expr: syntax.Field, frame: Frame) -> Static:
        parameter = dotted(expr, frame, self.expander.tensors)
        if parameter is not None:
            return parameter
        value = self(expr.value, frame)
        if isinstance(value, Layer):
            return self.expander.layer_tensor(value, expr, frame)
        if isinstance(value, (int, Poly)) and not isinstance(value, bool) and expr.name in ("min", "max"):
            return bounds(value)[expr.name == "max"]
        if isinstance(value, Value) and expr.name == "shape":
            return list(value.type.shape)
        if isinstance(value, Value) and expr.name == "T":
            if value.type.rank < 2:
                raise Problem("E0306", f"`.T` swaps the last two axes, {value.type} has {value.type.rank}", expr.span)
            order = (*range(value.type.rank - 2), value.type.rank - 1, value.type.rank - 2)
            return self.expander.emit(frame, expr.span, OPS["transpose"], value, perm=order)
        raise Problem(
            "E0102",
            f"{kind_of(value)} has no field `{expr.name}`",
            expr.span,
            "no such field",
            help=(field_hint(expr.name) if isinstance(value, Value) else None)
            or "a tensor has `.T` and `.shape`, a layer its parameters, as in `tok.weight`, a size `.min` and `.max`",
        )

    def _slice(self, expr: syntax.Expr, frame: Frame) -> Static:
        raise Problem("E0207", "a slice is only for a list, or for the axes of a tensor", expr.span, "not an index")

    def _unary(self, expr: syntax.Unary, frame: Frame) -> Static:
        if expr.op == "not":
            return not self.truth(expr.value, frame, "not")
        value = self(expr.value, frame)
        if isinstance(value, Value):
            return self.expander.emit(frame, expr.span, OPS["neg"], value)
        return arithmetic.binary("-", 0, value, expr.span) if not isinstance(value, float) else -value

    def _binary(self, expr: syntax.Binary, frame: Frame) -> Static:
        if expr.op in ("and", "or"):
            left = self.truth(expr.left, frame, expr.op)
            return self.truth(expr.right, frame, expr.op) if left == (expr.op == "and") else left
        # the parser's trees of long sums are left-deep: descend without recursion
        chain: list[syntax.Binary] = [expr]
        while isinstance(chain[-1].left, syntax.Binary) and chain[-1].left.op not in ("and", "or"):
            chain.append(chain[-1].left)
        value = self(chain[-1].left, frame)
        for link in reversed(chain):
            value = self.apply(link, value, self(link.right, frame), frame)
        return value

    def apply(self, expr: syntax.Binary, left: Static, right: Static, frame: Frame) -> Static:
        """``left op right`` after both sides are evaluated."""
        if not isinstance(left, Value) and not isinstance(right, Value):
            if isinstance(left, (str, list, tuple)) and isinstance(right, (str, list, tuple)):
                self.spend((len(left) + len(right)) // 4, expr.span)
            if arithmetic.is_float_of_size(expr.op, left, right):
                assert isinstance(left, (int, float, Poly)) and isinstance(right, (int, float, Poly))
                return self._of_tensors(expr, left, right, frame)
            return arithmetic.binary(expr.op, left, right, expr.op_span or expr.span)
        for side, value in ((expr.left, left), (expr.right, right)):
            if isinstance(value, bool) and _is_b1(left, right):
                continue
            if isinstance(value, bool) or not isinstance(value, (Value, int, float, Poly)):
                help = "`tensor([...])` makes a tensor of a list of numbers" if isinstance(value, list) else None
                title = f"`{expr.op}` of a tensor and {kind_of(value)}"
                raise Problem("E0202", title, side.span, "not a tensor", help=help)
        return self._of_tensors(expr, left, right, frame)

    def _of_tensors(self, expr: syntax.Binary, left: Static, right: Static, frame: Frame) -> Value:
        name = OPERATORS.get(expr.op)
        if name is None:
            raise Problem("E0202", f"`{expr.op}` is not for tensors", expr.span, f"{kind_of(left)}", help=None)
        call = self.expander.calls.site(frame, expr.span, frame.node_prefix)
        try:
            result = FUNCTIONS[name].build(call, left, right)
        except Mismatch as wrong:
            raise self._does_not_fit(expr, left, right, wrong, frame) from None
        assert isinstance(result, Value)
        return result

    def _does_not_fit(self, expr: syntax.Binary, left: Static, right: Static, wrong: Mismatch, frame: Frame) -> Problem:
        titles = {
            "E0301": f"`{expr.op}` cannot broadcast these shapes: {wrong.why}",
            "E0203": f"`{expr.op}` does not fit its arguments: {wrong.why}",
            "E0204": f"`{expr.op}` mixes {mixed(left, right)}",
        }
        return Problem(
            wrong.code,
            titles.get(wrong.code, wrong.why),
            expr.right.span,
            self.describe(expr.right, right, frame),
            also=(Label(expr.left.span, self.describe(expr.left, left, frame)),),
            help=of_tensors([left, right]) or with_cast(wrong.help, ((expr.left, left), (expr.right, right))),
        )

    def describe(self, expr: syntax.Expr, value: Static, frame: Frame) -> str:
        """A value's type and, for a name, the statement that defined it."""
        text = str(value.type) if isinstance(value, Value) else str(value)
        if isinstance(expr, syntax.Name) and expr.name in frame.origins:
            origin, line = frame.origins[expr.name]
            return f"{text}  from `{origin}`, line {line}"
        return text

    def _choose(self, expr: syntax.Choose, frame: Frame) -> Static:
        chosen = expr.then if self.truth(expr.condition, frame) else expr.other
        self.expander.chosen[id(expr)] = chosen
        return self(chosen, frame)

    def _range(self, expr: syntax.Range, frame: Frame) -> Static:
        low, high = self(expr.low, frame), self(expr.high, frame)
        for side, value in ((expr.low, low), (expr.high, high)):
            if type(value) is not int:
                code = "E0205" if isinstance(value, Poly) else "E0202"
                raise Problem(
                    code, f"the bounds of a range are ints, this is {kind_of(value)}", side.span, "not an int"
                )
        assert isinstance(low, int) and isinstance(high, int)
        if high - low > 1_000_000:
            raise Problem(
                "E0006", f"{high - low:,} iterations; the limit is 1,000,000 operations", expr.span, "too many"
            )
        self.spend(max(0, high - low) // 4, expr.span)
        return list(range(low, high))


def _is_b1(*sides: Static) -> bool:
    return any(isinstance(side, Value) and side.type.dtype is DType.B1 for side in sides)


def as_size(value: Static, expr: syntax.Expr) -> Size:
    """A value that must be a size; E0202."""
    if isinstance(value, bool) or not isinstance(value, (int, Poly)):
        help = None
        if isinstance(value, float):
            help = "`/` of sizes must divide exactly, `//` rounds down"
        elif is_scalar(value):
            help = NO_SIZE
        raise Problem("E0202", f"a size is an int, this is {kind_of(value)}", expr.span, "not a size", help=help)
    return value
