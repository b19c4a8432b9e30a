"""The body of a node that computes a tensor part by part: steps of several nodes, on parts of their inputs, each
once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from dslc.compiler.codegen.region.ir import all_strides
from dslc.compiler.ir.graph import Attr, Node, Value
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.compound.fused import MAX_STEPS, fused, results_of, steps_of
from dslc.compiler.passes.fuse.pointwise.stacks import Split, made_of, split_by

_MAX_INPUTS: Final = 48  # each is an argument of the kernel, and is loaded before the first step


class Unfit(Exception):
    """The steps cannot be those of one node."""


class _Place(NamedTuple):
    """The elements of an input from ``starts`` up to ``stops`` by ``steps``, in ``shape``; all of it if ``starts`` is
    empty."""

    source: Value
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...]
    shape: tuple[int, ...]


class _Step(NamedTuple):
    name: str
    read: tuple[_Ref, ...]
    attrs: tuple[tuple[str, Attr], ...]


_Ref: TypeAlias = "_Place | int"  # a place, or the number of a step


class Parts:
    """``moved``: nodes whose results are parts. ``split``, ``inner``: the split of a tensor into parts, and nodes of
    its shape that are computed part by part. ``finish`` makes ``inputs``, ``body`` and ``results``, and ``shape``, that
    of a part."""

    inputs: tuple[Value, ...]
    body: tuple[Attr, ...]
    results: tuple[int, ...]
    shape: tuple[int, ...]

    def __init__(
        self, moved: frozenset[Node], split: Split | None = None, inner: frozenset[Node] = frozenset()
    ) -> None:
        self.moved, self.split, self.inner = moved, split, inner
        self._steps: list[_Step] = []
        self._known: dict[Hashable, int] = {}
        self._made: dict[tuple[Node, int | None], tuple[_Ref, ...]] = {}

    def value(self, value: Value) -> _Ref:
        """A value of the parts' shape, or one that broadcasts to it."""
        made = _node(value)
        if made is None or made not in self.moved:
            return _whole(value)
        return self._results(made, None)[value.index]

    def part_of_node(self, node: Node, number: int) -> _Ref:
        """A part of the result of a node of the split's shape."""
        return self._results(node, number)[0]

    def _results(self, node: Node, number: int | None) -> tuple[_Ref, ...]:
        """The results of a node, or a part of each."""
        if (node, number) not in self._made:
            self._made[node, number] = self._computed(node, number)
        return self._made[node, number]

    def _part(self, value: Value, number: int) -> _Ref:
        assert self.split is not None
        axis = self.split.along(value.type.ints)
        if axis is None:
            return _whole(value)
        made = _node(value)
        if made is not None and made in self.inner:
            return self.part_of_node(made, number)
        found = made_of(value)
        if found is not None:
            own = split_by(found[1], value.type.ints)
            if own is not None and replace(self.split, whole=own.whole, axis=axis) == own:
                return self.value(found[1].parts[number])
        return self._cut(_whole(value), axis, number)

    def _cut(self, place: _Place, axis: int, number: int) -> _Place:
        """A part of a place along an axis."""
        assert self.split is not None
        rank = len(place.shape)
        if place.starts and rank != len(place.starts):
            raise Unfit
        start, stop, step = self.split.cut(place.shape[axis], number)
        starts, steps = list(place.starts or (0,) * rank), list(place.steps or (1,) * rank)
        stops, shape = list(place.stops or place.shape), list(place.shape)
        if steps[axis] < 0:
            raise Unfit
        first = starts[axis]
        starts[axis], stops[axis] = first + start * steps[axis], min(stops[axis], first + stop * steps[axis])
        steps[axis], shape[axis] = steps[axis] * step, len(range(start, stop, step))
        return _Place(place.source, tuple(starts), tuple(stops), tuple(steps), tuple(shape))

    def _computed(self, node: Node, number: int | None) -> tuple[_Ref, ...]:
        """The results of a pointwise node, a slice or a reshape, or a part of each."""
        steps = steps_of(node)
        known: dict[Value, _Ref] = {}

        def read(value: Value) -> _Ref:
            if value in known:
                return known[value]
            return self.value(value) if number is None else self._part(value, number)

        for step in steps:
            if step.op.name == "slice":
                known[step.out] = self._sliced(step, number)
            elif step.op.name == "reshape":
                known[step.out] = self._reshaped(read(step.inputs[0]), step, number)
            else:
                refs = tuple(read(v) for v in step.inputs)
                known[step.out] = self._step(step.op.name, refs, tuple(sorted(step.attrs.items())))
        values = [*node.inputs, *(step.out for step in steps)]
        return tuple(read(values[i]) for i in results_of(node.attrs, len(values)))

    def _sliced(self, node: Node, number: int | None) -> _Ref:
        """A slice, or a part of it. A slice that is a part of a tensor is read as that part, whatever the shape in
        which the tensor was sliced."""
        [source] = node.inputs
        starts, stops, steps = (int_tuple(node.attrs, name) for name in ("starts", "stops", "steps"))
        place = _Place(source, starts, stops, steps, node.types[0].ints)
        split = self.split
        if split is None:
            return place
        if number is not None:
            axis = split.along(place.shape)
            return place if axis is None else self._cut(place, axis, number)
        while (made := _node(source)) is not None and made.op.name == "reshape":
            source = made.inputs[0]
        if source.type.ints == split.whole:
            for part in range(split.count):
                if _elements(self._cut(_whole(source), split.axis, part)) == _elements(place):
                    return self._part(source, part)
        if _node(source) in self.inner:
            raise Unfit
        return place

    def _reshaped(self, ref: _Ref, step: Node, number: int | None) -> _Ref:
        """A place with axes of size 1 added or dropped; a part that was computed has its shape already."""
        if number is not None:
            raise Unfit
        return ref._replace(shape=step.types[0].ints) if isinstance(ref, _Place) else ref

    def _step(self, name: str, read: tuple[_Ref, ...], attrs: tuple[tuple[str, Attr], ...]) -> int:
        """The number of a step; equal ones are computed once."""
        key = (name, read, tuple((name, repr(value)) for name, value in attrs))
        if key not in self._known:
            if len(self._steps) == MAX_STEPS:
                raise Unfit
            self._known[key] = len(self._steps)
            self._steps.append(_Step(name, read, attrs))
        return self._known[key]

    def finish(self, results: Sequence[_Ref]) -> None:
        """Makes the body, whose results these are. Raises Unfit."""
        places = dict.fromkeys(r for step in self._steps for r in step.read if isinstance(r, _Place))
        places |= dict.fromkeys(r for r in results if isinstance(r, _Place))
        self.inputs = tuple(dict.fromkeys(place.source for place in places))
        cut = {place.source for place in places if place.starts}
        if len(self.inputs) > _MAX_INPUTS or cut & {place.source for place in places if not place.starts}:
            raise Unfit
        number = {v: i for i, v in enumerate(self.inputs)}
        body: list[Attr] = []
        at: dict[_Ref, int] = {}

        def add(name: str, read: tuple[int, ...], attrs: tuple[tuple[str, Attr], ...]) -> int:
            body.append((name, read, attrs))
            return len(self.inputs) + len(body) - 1

        for place in places:
            source, starts, stops, steps, shape = place
            last, now = number[source], source.type.ints
            if starts:
                last = add("slice", (last,), (("starts", starts), ("steps", steps), ("stops", stops)))
                now = tuple(len(range(*each)) for each in zip(starts, stops, steps))
            at[place] = last if shape == now else add("reshape", (last,), (("shape", shape),))
        for n, step in enumerate(self._steps):
            at[n] = add(step.name, tuple(at[r] for r in step.read), step.attrs)
        if len(body) > MAX_STEPS:
            raise Unfit
        self.body, self.results = tuple(body), tuple(at[r] for r in results)
        attrs = {"body": self.body, "results": self.results}
        self.shape = fused.infer([v.type for v in self.inputs], attrs)[0].ints


def _node(value: Value) -> Node | None:
    return value.producer if isinstance(value.producer, Node) else None


def _elements(place: _Place) -> tuple[int, list[tuple[int, int]]]:
    """Which elements of a row-major tensor a slice has: the first one, and the sizes and distances along its axes."""
    strides = all_strides(place.source.type.ints)
    first = sum(start * stride for start, stride in zip(place.starts, strides))
    counts = [len(range(*each)) for each in zip(place.starts, place.stops, place.steps)]
    return first, [(n, step * stride) for n, step, stride in zip(counts, place.steps, strides) if n != 1]


def _whole(value: Value) -> _Place:
    return _Place(value, (), (), (), value.type.ints)
