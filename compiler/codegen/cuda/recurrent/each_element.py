"""Loops whose elements do not need one another, as one kernel: a thread computes all steps of one of their elements.

Such are the states of selective scans (Gu and Dao 2023), of linear recurrences and of gates without a product: an
element of a carry depends on the same element before, and on elements of constants and sequences, which may be the
same along some axes. A thread keeps its element in a register, and loads several steps of the sequences at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Final, TypeAlias

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbers, constants, kernel_text
from dslc.compiler.codegen.cuda.kernel_spec import Unfit
from dslc.compiler.codegen.cuda.recurrent.cell import flattened
from dslc.compiler.codegen.cuda.recurrent.formulas import formula, literal
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import Launch, ScalarArgs, SizeGeneric
from dslc.compiler.codegen.region.ir import dense
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Graph, Input, Node, Value
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.ir.scalar import argument
from dslc.compiler.ir.scan import Loop, int_count
from dslc.compiler.ir.types import DType, alike
from dslc.compiler.ops.constants.literal import as_number

_THREADS: Final = 128
_AHEAD: Final = 8  # steps whose elements a thread loads at once
_TRIP: Final = 1e-6  # seconds from a load to its value, with many others under way
_KEPT: Final = (DType.F32, DType.BF16, DType.F16, DType.B1)
#: Of each axis of a value, the axis of the carries along which it lies; None: it is the same along all.
_Axes: TypeAlias = tuple[int | None, ...]


@dataclass(frozen=True)
class EachElement(SizeGeneric):
    """The kernel ``k(inputs of the loop, its results, count)``: all steps of so many ``elements``. ``text``: a step."""

    text: str
    elements: int
    count: int

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-self.elements // _THREADS), 1, 1), (_THREADS, 1, 1))

    @cached_property
    def code(self) -> Code:
        return Code("each_element.cu", self.text)

    @property
    def scalar_args(self) -> ScalarArgs:
        return (("i32", self.count),)


def each_element(node: Node) -> list[Launch]:
    """The launch of a loop. Raises Unfit."""
    source = _Source(node)
    if any(prod(t.ints[1:]) >= I32_PADDED_ELEMENTS for t in (*node.input_types, *node.types)):
        raise Unfit("its tensors are too large")
    return [Launch(EachElement(source.text(), prod(source.shape), int_count(node)), node.inputs, node.outputs)]


def is_of_elements(node: Node) -> bool:
    """Whether a loop can be such a kernel."""
    try:
        each_element(node)
    except Unfit:
        return False
    return True


def each_element_seconds(node: Node) -> float:
    """Modelled time of such a loop."""
    moved = sum(t.bytes for t in (*node.input_types, *node.types)) / H200.bandwidth
    return H200.launch + max(moved, int_count(node) / _AHEAD * _TRIP)


class _Source:
    """The text of a loop's step. Names in it, by the number of an input or result: ``p`` and ``y`` are pointers of
    inputs and results, ``last`` those of the carries at the end; ``h`` holds a carry, ``c`` a constant, ``x`` a
    sequence. Raises Unfit."""

    def __init__(self, node: Node) -> None:
        self.loop = Loop.of(node)
        if not self.loop.carries:
            raise Unfit("it carries nothing")
        self.shape = self.loop.carries[0].type.ints
        if any(v.type.ints != self.shape for v in self.loop.carries):
            raise Unfit("its carries have several shapes")
        self.graph: Graph = flattened(self.loop.graph)[0]
        self.number = {source.value: n for n, source in enumerate(self.graph.inputs)}
        self.constants = {source.value for source in self.loop.const_inputs}
        self.carries = {source.value for source in self.loop.carry_inputs}
        self.results = list(self.graph.outputs.values())
        self._loads: dict[tuple[Value, _Axes], str] = {}  # the number of each load of an input
        self._known: dict[tuple[Value, _Axes], str] = {}
        self._lines: list[str] = []
        own: _Axes = tuple(range(len(self.shape)))
        roots = [*self.results, *(value for _, value in self.graph.updates)]
        if any(value.type.ints != self.shape for value in roots):
            raise Unfit("its results have other shapes than its carries")
        self.texts = [self._element(value, own) for value in roots]

    def text(self) -> str:
        sizes = constants(
            THREADS=_THREADS, AHEAD=_AHEAD, ELEMENTS=prod(self.shape), REVERSE=int(bool(self.loop.reverse))
        )
        names = [name.rpartition(" ")[2].lstrip("*") for name in self._pointers]
        head = sizes + kernel_text("rounded.cuh") + Numbers(COUNT=1).text()
        head += f"#define POINTERS {', '.join(self._pointers)}\n#define POINTER_NAMES {', '.join(names)}\n"
        parts = (self._members(), self._begin(), self._fetch(), self._step(), self._end())
        return f"{head}struct Element {{\n{''.join(parts)}}};\n"

    @property
    def _pointers(self) -> list[str]:
        inputs = [f"const {C_TYPES[v.type.dtype]} *__restrict__ p{n}" for v, n in self.number.items()]
        carries = self.loop.carry_inputs
        lasts = [f"{C_TYPES[i.value.type.dtype]} *__restrict__ last{n}" for n, i in enumerate(carries)]
        results = [f"{C_TYPES[v.type.dtype]} *__restrict__ y{n}" for n, v in enumerate(self.results)]
        return [*inputs, *lasts, *results]

    # the elements of a step

    def _element(self, value: Value, axes: _Axes) -> str:
        """The expression of the thread's element of a value that lies along these axes; adds the lines before it."""
        if (value, axes) not in self._known:
            made = value.producer
            text = self._loaded(made, axes) if isinstance(made, Input) else self._computed(made, axes)
            self._known[value, axes] = text
        return self._known[value, axes]

    def _loaded(self, source: Input, axes: _Axes) -> str:
        value = source.value
        if value.type.dtype not in _KEPT:
            raise Unfit(f"it reads {value.type.dtype}")
        n = self.number[value]
        if value in self.carries:
            return f"h{n}"
        place = self._loads.setdefault((value, axes), f"{n}_{len(self._loads)}")
        return f"c{place}" if value in self.constants else f"x{place}[a]"

    def _computed(self, node: Node, axes: _Axes) -> str:
        [out] = node.types
        if out.dtype not in _KEPT:
            raise Unfit(f"it computes in {out.dtype}")
        match node.op.name:
            case "full":
                return _rounded(literal(as_number(node.attrs["value"])), node)
            case "reshape" if alike(node.input_types[0], out):
                return self._element(node.inputs[0], _reshaped(axes, out.ints, node.input_types[0].ints))
            case "expand":
                return self._element(node.inputs[0], _of_operand(axes, node.input_types[0].ints, out.ints))
        if not isinstance(node.op, Pointwise) or node.op.random:
            raise Unfit(f"it has a `{node.op.name}`")
        names = [self._element(v, _of_operand(axes, v.type.ints, out.ints)) for v in node.inputs]
        tree = node.op.scalar_of(DType.F32, node.attrs, *map(argument, range(len(names))))
        name = f"v{len(self._lines)}"
        kind = "bool" if out.dtype is DType.B1 else "float"
        self._lines.append(f"    const {kind} {name} = {_rounded(formula(tree, names), node)};\n")
        return name

    # the members

    def _members(self) -> str:
        lines = [f"  {each.replace(' *__restrict__ ', ' *')};\n" for each in self._pointers]
        lines += [f"  {_register(v)} h{self.number[v]};\n" for v in self._carries]
        for (value, _), place in self._loads.items():
            kind, constant = _register(value), value in self.constants
            lines.append(f"  {kind} c{place};\n" if constant else f"  int at{place};\n  {kind} x{place}[AHEAD];\n")
        return "".join(lines)

    @property
    def _carries(self) -> list[Value]:
        return [source.value for source in self.loop.carry_inputs]

    def _begin(self) -> str:
        names = [name.rpartition(" ")[2].lstrip("*") for name in self._pointers]
        given = ", ".join(each.replace(f" *__restrict__ {n}", f" *{n}_") for each, n in zip(self._pointers, names))
        made = ", ".join(f"{n}({n}_)" for n in names)
        lines = [f"  __device__ __forceinline__ Element(int i, {given}) : {made} {{\n"]
        rest = prod(self.shape)
        for axis, size in enumerate(self.shape):
            rest //= size
            lines.append(f"    const int i{axis} = i / {rest} % {size};\n")
        for value in self._carries:
            lines.append(f"    h{self.number[value]} = wide(p{self.number[value]}[i]);\n")
        for (value, axes), place in self._loads.items():
            where = self._place(value, axes)
            constant = value in self.constants
            lines.append(f"    c{place} = wide(p{self.number[value]}[{where}]);\n" if constant
                         else f"    at{place} = {where};\n")  # fmt: skip
        return "".join([*lines, "  }\n"])

    @staticmethod
    def _place(value: Value, axes: _Axes) -> str:
        """The index of the thread's element in an element of a sequence, or in a constant."""
        terms = [f"i{axis} * {step}" for axis, step in zip(axes, dense(value.type.ints)) if axis is not None]
        return " + ".join(terms) or "0"

    def _fetch(self) -> str:
        lines = ["  __device__ __forceinline__ void fetch(int a, long long at) {\n"]
        for (value, _), place in self._loads.items():
            if value not in self.constants:
                step = prod(value.type.ints)
                lines.append(f"    x{place}[a] = wide(p{self.number[value]}[at * {step} + at{place}]);\n")
        return "".join([*lines, "  }\n"])

    def _step(self) -> str:
        size, results = prod(self.shape), len(self.results)
        lines = ["  __device__ __forceinline__ void step(int a, long long at, int i) {\n", *self._lines]
        for n, text in enumerate(self.texts[:results]):
            lines.append(f"    store(y{n} + (at * {size} + i), {text});\n")
        updates = list(zip(self.graph.updates, self.texts[results:]))
        for (source, value), text in updates:
            lines.append(f"    const {_register(value)} t{self.number[source.value]} = {text};\n")
        for (source, _), _ in updates:
            lines.append(f"    h{self.number[source.value]} = t{self.number[source.value]};\n")
        return "".join([*lines, "  }\n"])

    def _end(self) -> str:
        lines = ["  __device__ __forceinline__ void end(int i) {\n"]
        for n, value in enumerate(self._carries):
            lines.append(f"    store(last{n} + i, h{self.number[value]});\n")
        return "".join([*lines, "  }\n"])


def _register(value: Value) -> str:
    return "bool" if value.type.dtype is DType.B1 else "float"


def _rounded(text: str, node: Node) -> str:
    dtype = node.types[0].dtype
    return f"rounded_{dtype.value}({text})" if dtype.is_half else text


def _of_operand(axes: _Axes, own: Sequence[int], whole: Sequence[int]) -> _Axes:
    """The axes of an operand of a broadcast result: the last ones, of which some have size 1."""
    last = zip(axes[len(axes) - len(own) :], own, whole[len(whole) - len(own) :])
    return tuple(axis if size == all else None for axis, size, all in last)


def _reshaped(axes: _Axes, sizes: Sequence[int], before: Sequence[int]) -> _Axes:
    """The axes before a reshape that adds and removes axes of size 1."""
    kept = (axis for axis, size in zip(axes, sizes) if size != 1)
    return tuple(next(kept) if size != 1 else None for size in before)
