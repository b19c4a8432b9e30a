"""Regions that compute pointwise values before and after those of an op, e.g. the casts around a softmax.

The op's own launches come first, as its kernels would be without neighbours. Then each of them loads what the values
before the op are computed from in place of the op's input, and stores what is computed from the op's result in place of
that result::

    x: bf16, softmax in f32, y: bf16         x = load f32 -> x = f32(load bf16)
                                             store f32(y) -> store bf16(y)

A region with sums keeps the schedule of the op's own region, so their order, and all bits, stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dslc.compiler.codegen.cuda.region.extended import ExtendedRegion
from dslc.compiler.codegen.cuda.region.schedule import schedule
from dslc.compiler.codegen.cuda.region.thread_mapping import Columns
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.collapse import merged_axes
from dslc.compiler.codegen.region.ir import (
    Access,
    Bits,
    Fetch,
    Let,
    MixedRadix,
    Region,
    Scan,
    all_strides,
    broadcast_strides,
)
from dslc.compiler.codegen.region.pointwise import step_value
from dslc.compiler.codegen.region.queries import substituted, used_values
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.scalar import Expr

#: Sizes of pieces of one axis, outermost first, and an argument's stride along each.
_Pieces = tuple[tuple[int, ...], tuple[int, ...]]


class Unfit(Exception):
    """The op's kernel cannot compute these values."""


def with_neighbours(launches: Sequence[Launch], core: Node, steps: Sequence[Node], out: Value) -> list[Launch]:
    """The launches of the node ``core``, which also compute the pointwise ``steps`` before and after it. ``out``: the
    value that the last step's result becomes. Raises Unfit."""
    place = steps.index(core)
    before, after = {step.out: step for step in steps[:place]}, steps[place + 1 :]
    found = []
    for launch in launches:
        computed = any(v in before for v in launch.reads) or (bool(after) and core.out in launch.writes)
        if core.out in launch.reads:
            raise Unfit("it reads its result again")
        made = launch
        if computed and isinstance(launch.spec, Region):
            made = _Extension(launch, before, after, core.out).launch()
        elif computed:
            made = _between_casts(launch, before, after, core.out)
        found.append(replace(made, writes=tuple(out if v is core.out else v for v in made.writes)))
    return found


def _between_casts(launch: Launch, before: Mapping[Value, Node], after: Sequence[Node], result: Value) -> Launch:
    """A launch of another kind, which can only do without casts from and to 16 bits."""
    made = after if result in launch.writes else ()
    steps = [before[v] for v in launch.reads if isinstance(v, Value) and v in before]
    halves = [step.input_types[0].dtype for step in steps] + [step.types[0].dtype for step in made]
    casts = all(step.op.name == "cast" for step in (*steps, *made)) and all(dtype.is_half for dtype in halves)
    casts = casts and not any(step.inputs[0] in before for step in steps)
    if not hasattr(launch.spec, "between_casts") or not casts or len(made) > 1:
        raise Unfit("its kernel is not a region")
    reads = tuple(before[v].inputs[0] if isinstance(v, Value) and v in before else v for v in launch.reads)
    [first, *_] = (v for v in reads if isinstance(v, Value))
    spec = launch.spec.between_casts(first.type.dtype, (made[0].types if made else (result.type,))[0].dtype)
    return Launch(spec, reads, launch.writes)


class _Extension:
    """One launch, extended by the neighbours of its op.

    ``before``: values -> the steps that compute them; ``after``: what is computed from ``result``.
    """

    def __init__(self, launch: Launch, before: Mapping[Value, Node], after: Sequence[Node], result: Value) -> None:
        self.own, self.old = launch, launch.spec
        self.before, self.after, self.result = before, after, result
        self.reads: dict[tuple[Value | Scratch, Access], int] = {}
        self.kept: dict[int, int] = {}  # an input of the old region -> the input of the new one
        self.cuts: list[tuple[int, ...]] = [(size,) for size in self.old.outer]

    def launch(self) -> Launch:
        self._cut_axes()
        old, sizes = self.old, tuple(size for cut in self.cuts for size in cut)
        for n, (value, access) in enumerate(zip(self.own.reads, old.inputs)):
            if value not in self.before:
                self.kept[n] = self.reads.setdefault((value, self._pieces(access)), len(self.reads))
        needed = [v for n in range(len(old.inputs)) if n not in self.kept for v in self._leaves(n)]
        for key in [*needed, *(self._stored_leaves())]:
            self.reads.setdefault(key, len(self.reads))
        outputs = [self._output(n) for n in range(len(old.outputs))]
        places = [sum(len(cut) for cut in self.cuts[:axis]) for axis in range(len(old.outer) + 1)]
        indices = [places[a] if a < len(old.outer) else places[-1] + a - len(old.outer) for a in old.indices]
        accesses = [access for _, access in self.reads]
        b = RegionBuilder(sizes, old.inner, accesses, outputs, indices)
        stages = self._stages(b, indices)
        canonical = self._strides(old.canonical_strides) if old.canonical_strides else ()
        parts = (sizes, old.inner, tuple(accesses), tuple(outputs), stages, tuple(indices), canonical)
        sums = any(stage.reduces for stage in old.stages) or any(
            isinstance(let, Scan) for stage in old.stages for let in stage.lets
        )
        spec = ExtendedRegion(*parts, core=old) if sums else Region(*parts)
        return Launch(spec, tuple(value for value, _ in self.reads), self.own.writes)

    def _stages(self, b: RegionBuilder, indices: Sequence[int]) -> tuple[Any, ...]:
        old = self.old
        known = {n: b.input(i) for n, i in self.kept.items()}
        known[old.index] = b.index
        known |= {old.index + 1 + n: b.along(axis) for n, axis in enumerate(indices)}
        number = old.first
        for stage in old.stages:
            b.element() if stage.element else b.row()
            values: dict[tuple[Value, Access], Expr] = {}
            for n in sorted(used_values(stage)):
                if n < len(old.inputs) and n not in self.kept:
                    known[n] = self._computed(b, self.own.reads[n], old.inputs[n], values)
            for let in stage.lets:
                known[number] = b.add(self._renumbered(let, known))
                number += 1
            stores = [(s.output, self._stored(b, s.output, known[s.value], values)) for s in stage.stores]
            for reduce in stage.reduces:
                known[number] = b.reduce(reduce.combine, known[reduce.value])
                number += 1
            for output, value in stores:
                b.store(output, value)
            for flag in stage.flags:
                b.set_flag(flag.output, known[flag.value])
        return b.region().stages

    def _renumbered(self, let: Let | Fetch | Scan | Bits, known: Mapping[int, Expr]) -> Let | Fetch | Scan:
        match let:
            case Let():
                return replace(let, expr=substituted(let.expr, known.__getitem__))
            case Scan():
                return replace(let, value=known[let.value].index)
            case Fetch() if let.input in self.kept:
                mask = None if let.mask is None else known[let.mask].index
                return Fetch(self.kept[let.input], known[let.index].index, mask)
        raise Unfit("it reads computed places of the input, or draws random numbers")

    def _leaves(self, number: int) -> Iterable[tuple[Value, Access]]:
        """The values from which an input of the op is computed, and their addresses."""
        value, access = self.own.reads[number], self.old.inputs[number]
        assert isinstance(value, Value)
        stack, seen = [value], set[Value]()
        while stack:
            each = stack.pop()
            if each in seen:
                continue
            seen.add(each)
            step = self.before.get(each)
            if step is None:
                yield each, self._view(access, value, each)
            else:
                stack += reversed(step.inputs)

    def _stored_leaves(self) -> Iterable[tuple[Value, Access]]:
        made = {self.result, *(step.out for step in self.after)}
        for n, target in enumerate(self.own.writes):
            if target is self.result:
                for value in dict.fromkeys(v for step in self.after for v in step.inputs if v not in made):
                    yield value, self._view(self.old.outputs[n], self.result, value)

    def _computed(
        self, b: RegionBuilder, value: Value | Scratch, access: Access, values: dict[tuple[Value, Access], Expr]
    ) -> Expr:
        """A value before the op, at the place of an access."""
        assert isinstance(value, Value)
        whole = value

        def at(each: Value) -> Expr:
            if (each, access) not in values:
                step = self.before.get(each)
                if step is None:
                    found = b.input(self.reads[each, self._view(access, whole, each)])
                else:
                    found = step_value(b, step, [at(v) for v in step.inputs])
                values[each, access] = found
            return values[each, access]

        return at(value)

    def _stored(self, b: RegionBuilder, output: int, value: Expr, values: dict[tuple[Value, Access], Expr]) -> Expr:
        """The values that are stored in place of the op's result."""
        if self.own.writes[output] is not self.result or not self.after:
            return value
        access, known = self.old.outputs[output], {self.result: value}
        for step in self.after:
            inputs = [
                known[v] if v in known else b.input(self.reads[v, self._view(access, self.result, v)])
                for v in step.inputs
            ]
            known[step.out] = step_value(b, step, inputs)
        return known[self.after[-1].out]

    def _output(self, number: int) -> Access:
        access = self.old.outputs[number]
        if self.own.writes[number] is self.result and self.after:
            access = replace(access, dtype=self.after[-1].types[0].dtype)
        return self._pieces(access)

    def _cut_axes(self) -> None:
        """Cuts outer axes into pieces along which all operands of the steps have strides."""
        for value, access, leaf in self._operands():
            for axis, (size, stride) in enumerate(zip(self.old.outer, access.strides)):
                whole, steps = _split(size, stride, value.type.ints, _strides_in(leaf, value))
                if len(merged_axes(whole, steps)[0]) > 1:
                    last = axis == len(self.cuts) - 1
                    if self.cuts[axis] not in ((size,), whole) or self.old.indices or (last and self._by_columns):
                        raise Unfit("the operands of its neighbours have other axes")
                    self.cuts[axis] = whole

    @property
    def _by_columns(self) -> bool:
        return isinstance(schedule(self.old), Columns)

    def _operands(self) -> Iterable[tuple[Value, Access, Value]]:
        """A value of the op, its access, and an operand of a step next to it."""
        for n, value in enumerate(self.own.reads):
            if value in self.before:
                assert isinstance(value, Value)
                steps = [value]
                for each in steps:
                    for v in self.before[each].inputs:
                        if v in self.before:
                            steps.append(v)
                        else:
                            yield value, self.old.inputs[n], v
        for n, target in enumerate(self.own.writes):
            if target is self.result:
                made = {self.result, *(step.out for step in self.after)}
                for v in dict.fromkeys(v for step in self.after for v in step.inputs if v not in made):
                    yield self.result, self.old.outputs[n], v

    def _strides(self, strides: Sequence[int]) -> tuple[int, ...]:
        """Strides over the axes of the new region."""
        outer = len(self.cuts)
        cut = [s * step for s, cut in zip(strides, self.cuts) for step in all_strides(cut)]
        return (*cut, *strides[outer:])

    def _pieces(self, access: Access) -> Access:
        if all(len(cut) == 1 for cut in self.cuts):
            return access
        if access.mixed_radix or access.repeat > 1:
            raise Unfit("its input has mixed axes")
        return replace(access, strides=self._strides(access.strides))

    def _view(self, access: Access, value: Value, leaf: Value) -> Access:
        """The access to a tensor that is broadcast to the shape of a value, where the op accesses the value."""
        dtype, shape = leaf.type.dtype, value.type.ints
        if access.bits:
            raise Unfit("its input is packed")
        if leaf.type.ints == shape:
            return replace(self._pieces(access), dtype=dtype)
        if access.mixed_radix or access.repeat > 1:
            raise Unfit("its input has mixed axes")
        own, rest, offset = _strides_in(leaf, value), access.offset, 0
        for step, stride in zip(all_strides(shape), own):
            offset += rest // step * stride
            rest %= step
        strides: list[int] = []
        for cut, stride, size in zip(self.cuts, access.strides, self.old.outer):
            whole = _split(size, stride, shape, own)
            sizes, steps = merged_axes(*whole)
            strides += [steps[0] * each for each in all_strides(cut)] if len(sizes) == 1 else whole[1]
        mixed: list[MixedRadix] = []
        axes = len(strides) + len(self.old.inner)
        for size, stride in zip(self.old.inner, access.strides[len(self.old.outer) :]):
            sizes, steps = merged_axes(*_split(size, stride, shape, own))
            if len(sizes) > 1:
                one = tuple(int(axis == len(strides)) for axis in range(axes))
                mixed.append(MixedRadix(one, sizes, steps))
            strides.append(steps[0] if len(sizes) == 1 else 0)
        return Access(dtype, tuple(strides), offset, mixed_radix=tuple(mixed))


def _strides_in(leaf: Value, value: Value) -> tuple[int, ...]:
    """The strides of a tensor that is broadcast to a value's shape."""
    return broadcast_strides(leaf.type.ints, value.type.ints)


def _split(size: int, stride: int, shape: Sequence[int], own: Sequence[int]) -> _Pieces:
    """An axis of so many elements of a dense tensor of this shape, ``stride`` apart, as axes of the tensor: their sizes
    and ``own`` strides. Raises Unfit."""
    steps = all_strides(shape)
    if size == 1 or stride == 0:
        return (size,), (0,)
    sizes: list[int] = []
    strides: list[int] = []
    left = size
    while left > 1:
        axis = max(
            (a for a, (n, s) in enumerate(zip(shape, steps)) if n > 1 and stride % s == 0), key=_key(steps, stride)
        )
        times = stride // steps[axis]
        if times * (left - 1) < shape[axis]:
            count = left
        elif times == 1 and left % shape[axis] == 0:
            count = shape[axis]
        else:
            raise Unfit("its axes are not those of the tensor")
        sizes.insert(0, count)
        strides.insert(0, times * own[axis])
        left //= count
        stride = steps[axis] * shape[axis]
    return tuple(sizes), tuple(strides)


def _key(steps: Sequence[int], stride: int) -> Any:
    """The largest step that is at most a stride."""
    return lambda axis: steps[axis] if steps[axis] <= stride else -1
