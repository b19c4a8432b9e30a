"""The named tensors of a model: parameters, buffers, data and scalars, each an input of the graph."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from dslc.compiler.check.values import Groups, Problem
from dslc.compiler.ir.function import Init
from dslc.compiler.ir.graph import Input, Kind, Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Poly, bounds
from dslc.compiler.ir.stored import Stored
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.random.init import resolve
from dslc.dsl.diagnostics import Label
from dslc.dsl.span import Span

MAX_BYTES: Final = 2**47  # a tensor beyond 128 TiB is a typing error, and offsets must stay far from 2^63


def check_bytes(type: TensorType, span: Span) -> None:
    """E0305 for a tensor that may exceed MAX_BYTES; floats count as f32."""
    bytes = math.prod(bounds(size)[1] for size in type.shape) * type.dtype.itemsize
    if bytes > MAX_BYTES:
        raise Problem("E0305", f"{type} takes up to {bytes:,} bytes", span, "too large")


@dataclass(frozen=True)
class ParamInfo:
    """A parameter or buffer: its initialiser and its group."""

    input: Input
    init: Init
    groups: Groups
    span: Span


@dataclass(frozen=True)
class StateInfo:
    """A tensor whose value lasts from step to step; all its elements start as ``start``."""

    input: Input
    start: float
    span: Span


@dataclass
class Kept:
    """The buffers and states in a step, or in the body of a loop. ``first``: in a body, what stands for each that it
    reads or updates, as the step of the loop finds it; ``updates``: their values after it."""

    first: dict[Input, Input] = field(default_factory=dict)
    updates: dict[Input, Value] = field(default_factory=dict)


class Tensors:
    """All named tensors, in the order of their creation (forward order)."""

    def __init__(self) -> None:
        self.stored: dict[str, ParamInfo] = {}
        self.states: dict[str, StateInfo] = {}
        self.data: dict[str, Input] = {}
        self.scalars: dict[str, Input] = {}
        self.constants: dict[str, Input] = {}
        self._kept = [Kept()]  # of the training step, and of each loop whose body runs, the innermost last
        self._only_trained: dict[Value, Value] = {}
        self._prefixes: set[str] = set()

    @property
    def inputs(self) -> tuple[Input, ...]:
        stored = (p.input for p in self.stored.values())
        states = (s.input for s in self.states.values())
        return (*self.data.values(), *stored, *states, *self.scalars.values(), *self.constants.values())

    @property
    def updates(self) -> tuple[tuple[Input, Value], ...]:
        """Each updated buffer or state and its value after the step, in the order of the first update."""
        return tuple(self._kept[0].updates.items())

    @contextmanager
    def in_body(self) -> Iterator[Kept]:
        """Inside, the body of a loop runs: each step of it finds what the step before left."""
        self._kept.append(Kept())
        try:
            yield self._kept[-1]
        finally:
            self._kept.pop()

    def before(self, source: Input) -> Value:
        """The value of a buffer or state at the begin of the training step, or of the step of the innermost loop."""
        if len(self._kept) == 1:
            return source.value
        first = self._kept[-1].first
        if source not in first:
            first[source] = Input(source.name, source.kind, source.value.type, source.span)
        return first[source].value

    def now(self, source: Input) -> Value:
        """The value of a buffer or state at this point."""
        found = self._kept[-1].updates.get(source)
        return self.before(source) if found is None else found

    @property
    def only_trained(self) -> dict[Value, Value]:
        """The values that assignments give to buffers, each with the one that evaluation reads in its place."""
        return dict(self._only_trained)

    def has_below(self, path: str) -> bool:
        """True if the name of a stored tensor starts with this path."""
        return path in self._prefixes

    def param(self, name: str, shape: tuple[object, ...], init: Init, groups: Groups, span: Span) -> Value:
        return self._stored(name, shape, init, groups, span, Kind.PARAM)

    def buffer(self, name: str, shape: tuple[object, ...], init: Init, span: Span) -> Value:
        """The value of the buffer after the last call before this one."""
        self._stored(name, shape, init, Groups(), span, Kind.BUFFER)
        return self.current(name)

    def current(self, name: str) -> Value:
        """The value of a buffer or state at this point of the step: the updated value, if any, else the old one."""
        source = self._declared(name).input
        return source.value if source.kind is Kind.PARAM else self.now(source)

    def declared(self, name: str) -> TensorType:
        """The type of a buffer or state."""
        return self._declared(name).input.value.type

    def _declared(self, name: str) -> ParamInfo | StateInfo:
        return self.states[name] if name in self.states else self.stored[name]

    def state(self, name: str, type: TensorType, start: float, span: Span) -> Value:
        """The value of the state at this point of the step. E0305; E0302 if a call of the same layer gave it another
        shape."""
        known = self.states.get(name)
        if known is None:
            check_bytes(type, span)
            self.states[name] = StateInfo(Input(name, Kind.STATE, type, span), start, span)
        elif known.input.value.type != type:
            title = f"the state `{name}` is {known.input.value.type}, here it would be {type}"
            also = (Label(known.span, "its first call"),)
            raise Problem("E0302", title, span, "a second call with other shapes", also=also)
        return self.current(name)

    def _stored(
        self, name: str, shape: tuple[object, ...], init: Init, groups: Groups, span: Span, kind: Kind
    ) -> Value:
        sizes: list[int] = []
        for size in shape:
            if isinstance(size, Poly):
                first, *_ = sorted(size.dims, key=lambda dim: dim.name)
                dims = " and ".join(sorted(d.name for d in size.dims))
                raise Problem(
                    "E0307",
                    f"the shape of parameter `{name}` depends on dim {dims}",
                    span,
                    f"one of its sizes is {size}",
                    help="a parameter has the same shape for every built size: its greatest, "
                    f"`{first}.max`, or fix it: `dim {first} = {first.default}`",
                )
            assert isinstance(size, int)
            if size < 1:
                raise Problem("E0308", f"parameter `{name}` would have a size of {size}", span, "has no elements")
            sizes.append(size)
        known = self.stored.get(name)
        if known is not None:
            if known.input.value.type.shape != tuple(sizes) or known.input.kind is not kind:
                raise Problem(
                    "E0302",
                    f"the shared parameter `{name}` is {known.input.value.type}, here it would be {list(sizes)}",
                    span,
                    "a second call with other shapes",
                    also=(Label(known.span, "its first call"),),
                )
            return known.input.value
        type = TensorType(DType.FLOAT, tuple(sizes))
        bytes = type.bytes
        if bytes > MAX_BYTES:
            raise Problem("E0305", f"parameter `{name}` {type} takes {bytes:,} bytes as f32", span, "too large")
        try:
            start = resolve(init, tuple(sizes))
        except Mismatch as wrong:
            raise Problem(wrong.code, wrong.why, span, help=wrong.help) from None
        made = Input(name, kind, type, span)
        self.stored[name] = ParamInfo(made, start, groups, span)
        parts = name.split(".")
        self._prefixes.update(".".join(parts[:i]) for i in range(1, len(parts)))
        return made.value

    def scalar(self, name: str, dtype: DType) -> Value:
        """A run-time number in the step block."""
        if name not in self.scalars:
            self.scalars[name] = Input(name, Kind.SCALAR, TensorType(dtype, ()))
        return self.scalars[name].value

    def constant(self, origin: str, numbers: Any, dtype: DType, span: Span) -> Value:
        """A tensor of the numbers of an array, which the artifact stores. ``origin``: what people know it by, such as
        the name of a file; equal numbers of one origin are one tensor."""
        stored = Stored(numbers)
        name = f"{origin}:{stored.digest[:16]}.{dtype.value}"
        if name not in self.constants:
            type = TensorType(dtype, numbers.shape)
            check_bytes(type, span)
            self.constants[name] = Input(name, Kind.CONSTANT, type, span, stored)
        return self.constants[name].value

    def keep_constants(self, read: set[Value]) -> None:
        """Forgets the constants that nothing reads."""
        self.constants = {name: source for name, source in self.constants.items() if source.value in read}

    def add_data(self, name: str, type: TensorType, span: Span) -> Value:
        """A data input of the model or of `train`."""
        self.data[name] = Input(name, Kind.DATA, type, span)
        return self.data[name].value

    def update(self, name: str, new: Value) -> None:
        """Sets a buffer's or state's value from here on: for what follows in the step, and after it."""
        self.set(self._declared(name).input, new)

    def set(self, source: Input, new: Value) -> None:
        """The same of a buffer or state itself."""
        self._kept[-1].updates[source] = new

    def update_in_training(self, name: str, new: Value) -> None:
        """The same of a buffer; in evaluation, what reads ``new`` reads the buffer. ``new`` is a value of its own."""
        self._only_trained[new] = self.before(self._declared(name).input)
        self.update(name, new)

    def replaced(self, new: Mapping[Value, Value]) -> None:
        """Notes that other values stand for those that assignments gave to buffers, or for what was before them."""
        pairs = self._only_trained.items()
        self._only_trained = {new.get(given, given): new.get(before, before) for given, before in pairs}
