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
from typing import TypeAlias

from dslc.compiler.codegen.cuda.kernel_spec import Unfit
from dslc.compiler.codegen.cuda.region.axis_pieces import AxisPieces
from dslc.compiler.codegen.cuda.region.extended import ExtendedRegion
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, Bits, Fetch, Let, Region, Scan, Stage
from dslc.compiler.codegen.region.pointwise import step_value
from dslc.compiler.codegen.region.queries import substituted, used_values
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.scalar import Expr

#: The values before the op that one stage has computed, by the access at whose place.
_Computed: TypeAlias = dict[tuple[Value, Access], Expr]


def with_neighbours(launches: Sequence[Launch], core: Node, steps: Sequence[Node], out: Value) -> list[Launch]:
    """The launches of the node ``core``, which also compute the pointwise ``steps`` before and after it. ``out``: the
    value that the last step's result becomes. Raises Unfit."""
    place = steps.index(core)
    before, after = {step.out: step for step in steps[:place]}, steps[place + 1 :]
    if any(v in before for step in after for v in step.inputs):
        raise Unfit("a step after it reads what a step before it computes")
    found = []
    for launch in launches:
        extended = any(v in before for v in launch.reads) or (bool(after) and core.out in launch.writes)
        if core.out in launch.reads:
            raise Unfit("it reads its result again")
        made = launch
        if extended and isinstance(launch.spec, Region):
            made = _Extension(launch, before, after, core.out).launch()
        elif extended:
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
    """One launch of the op, extended by the op's neighbours. An operand is a value that a neighbour reads from memory.

    ``before``: values -> the steps that compute them; ``after``: the steps that are computed from ``result``.
    """

    def __init__(self, launch: Launch, before: Mapping[Value, Node], after: Sequence[Node], result: Value) -> None:
        self.old: Launch = launch
        self.region: Region = launch.spec
        self.before, self.after, self.result = before, after, result
        self.pieces = AxisPieces(self.region)
        self.reads: dict[tuple[Value | Scratch, Access], int] = {}  # inputs of the new region -> their numbers
        self.kept: dict[int, int] = {}  # an input of the old region -> the same input of the new one

    def launch(self) -> Launch:
        self._cut_axes()
        self._number_reads()
        old, pieces = self.region, self.pieces
        outputs = [self._output(number) for number in range(len(old.outputs))]
        indices = [pieces.axis(axis) for axis in old.indices]
        accesses = [access for _, access in self.reads]
        b = RegionBuilder(pieces.sizes, old.inner, accesses, outputs, indices)
        stages = self._stages(b, indices)
        canonical = pieces.strides(old.canonical_strides) if old.canonical_strides else ()
        parts = (pieces.sizes, old.inner, tuple(accesses), tuple(outputs), stages, tuple(indices), canonical)
        ordered = any(stage.reduces or any(isinstance(let, Scan) for let in stage.lets) for stage in old.stages)
        spec = ExtendedRegion(*parts, core=old) if ordered else Region(*parts)
        return Launch(spec, tuple(value for value, _ in self.reads), self.old.writes)

    # What the new region reads and writes.

    def _cut_axes(self) -> None:
        for number, value in enumerate(self.old.reads):
            if isinstance(value, Value) and value in self.before:
                for operand in self._operands_before(value):
                    self.pieces.cut_for(value, self.region.inputs[number], operand)
        for number in self._result_outputs:
            for operand in self._operands_after():
                self.pieces.cut_for(self.result, self.region.outputs[number], operand)

    def _number_reads(self) -> None:
        """First the inputs that stay, then the operands before the op, then those after it."""
        for number, (value, access) in enumerate(zip(self.old.reads, self.region.inputs)):
            if value not in self.before:
                key = value, self.pieces.access(access)
                self.kept[number] = self.reads.setdefault(key, len(self.reads))
        needed: list[tuple[Value, Access]] = []
        for number, value in enumerate(self.old.reads):
            if isinstance(value, Value) and value in self.before:
                access = self.region.inputs[number]
                needed += [(v, self.pieces.operand_access(access, value, v)) for v in self._operands_before(value)]
        for number in self._result_outputs:
            access = self.region.outputs[number]
            needed += [(v, self.pieces.operand_access(access, self.result, v)) for v in self._operands_after()]
        for each in needed:
            self.reads.setdefault(each, len(self.reads))

    @property
    def _result_outputs(self) -> list[int]:
        """The outputs of the old region that are the op's result."""
        return [number for number, value in enumerate(self.old.writes) if value is self.result]

    def _operands_before(self, value: Value) -> Iterable[Value]:
        """The operands from which an input of the op is computed."""
        stack, seen = [value], set[Value]()
        while stack:
            each = stack.pop()
            if each in seen:
                continue
            seen.add(each)
            step = self.before.get(each)
            if step is None:
                yield each
            else:
                stack += reversed(step.inputs)

    def _operands_after(self) -> Iterable[Value]:
        """The operands with which the steps after the op are computed."""
        made = {self.result, *(step.out for step in self.after)}
        return dict.fromkeys(v for step in self.after for v in step.inputs if v not in made)

    def _output(self, number: int) -> Access:
        access = self.region.outputs[number]
        if self.old.writes[number] is self.result and self.after:
            access = replace(access, dtype=self.after[-1].types[0].dtype)
        return self.pieces.access(access)

    # What it computes.

    def _stages(self, b: RegionBuilder, indices: Sequence[int]) -> tuple[Stage, ...]:
        """The old stages with the steps in them. ``known``: the new values of the old ones."""
        old = self.region
        known = {n: b.input(i) for n, i in self.kept.items()}
        known[old.index] = b.index
        known |= {old.index + 1 + n: b.along(axis) for n, axis in enumerate(indices)}
        number = old.first
        for stage in old.stages:
            b.element() if stage.element else b.row()
            computed: _Computed = {}
            for n in sorted(used_values(stage)):
                if n < len(old.inputs) and n not in self.kept:
                    known[n] = self._input(b, n, computed)
            for let in stage.lets:
                known[number] = b.add(self._renumbered(let, known))
                number += 1
            stores = [(s.output, self._stored(b, s.output, known[s.value])) for s in stage.stores]
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

    def _input(self, b: RegionBuilder, number: int, computed: _Computed) -> Expr:
        """The value of an input of the op, computed from its operands."""
        whole, access = self.old.reads[number], self.region.inputs[number]
        assert isinstance(whole, Value)

        def at(value: Value) -> Expr:
            if (value, access) not in computed:
                step = self.before.get(value)
                if step is None:
                    found = b.input(self.reads[value, self.pieces.operand_access(access, whole, value)])
                else:
                    found = step_value(b, step, [at(v) for v in step.inputs])
                computed[value, access] = found
            return computed[value, access]

        return at(whole)

    def _stored(self, b: RegionBuilder, output: int, value: Expr) -> Expr:
        """What is stored to an output of the op: in place of its result, the result of the last step."""
        if self.old.writes[output] is not self.result or not self.after:
            return value
        access, known = self.region.outputs[output], {self.result: value}
        for step in self.after:
            inputs = [
                known[v] if v in known else b.input(self.reads[v, self.pieces.operand_access(access, self.result, v)])
                for v in step.inputs
            ]
            known[step.out] = step_value(b, step, inputs)
        return known[self.after[-1].out]
