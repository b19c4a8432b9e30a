"""Multi-tensor launch: runs one region for each of many groups of arguments with different sizes.

The updates of all small parameters are one kernel instead of a launch each; its blocks are chunks of all tensors (the
multi-tensor apply of PyTorch and Apex). Casts of weights use it, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from dslc.compiler.codegen.cuda.hardware import MAX_POINTERS
from dslc.compiler.codegen.cuda.region.promote_f32 import promote_f32
from dslc.compiler.codegen.cuda.region.schedule import vector_of
from dslc.compiler.codegen.cuda.region.source import Source, SourceKernel
from dslc.compiler.codegen.cuda.region.values import Reg, Values
from dslc.compiler.codegen.cuda.region.writer import Index, SourceWriter
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import optimizer
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, Let, Region
from dslc.compiler.codegen.region.queries import used_values
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.scalar import argument
from dslc.compiler.ops.optimizer.multi_update import member, parted

Argument = Value | Scratch
_BLOCK_THREADS: Final = 256
_THREAD_ELEMENTS: Final = 8  # elements per thread


@described("Foreach", "region sizes first")
@dataclass(frozen=True)
class Foreach(SourceKernel):
    """Runs ``region``, of one outer axis and no inner one, for each of ``sizes`` as the length of that axis.

    The region's inputs along the axis come before those without a stride; the same holds for outputs. Arguments: the
    inputs of each size, then the shared inputs; the outputs of each size, then the shared outputs. Shared outputs have
    one element per size, from index ``first`` on.
    """

    region: Region
    sizes: tuple[int, ...]
    first: int = 0

    @property
    def chunks(self) -> tuple[int, ...]:
        """Blocks per size."""
        return tuple(-(-size // (_BLOCK_THREADS * _THREAD_ELEMENTS)) for size in self.sizes)

    @property
    def geometry(self) -> Geometry:
        return Geometry((max(1, sum(self.chunks)), 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def own(self) -> tuple[int, int]:
        """How many inputs and outputs each size has of its own."""
        inputs, outputs = (sum(map(_along, side)) for side in (self.region.inputs, self.region.outputs))
        return inputs, outputs

    @property
    def arguments(self) -> int:
        own, shared = sum(self.own), len(self.region.inputs) + len(self.region.outputs) - sum(self.own)
        return own * len(self.sizes) + shared

    def source(self, name: str) -> Source:
        """The source of the kernel: whole vectors first, then the rest of each size, element by element."""
        return _Emitter(name, self).source()


def _along(access: Access) -> bool:
    return any(access.strides)


class _Emitter:
    def __init__(self, name: str, spec: Foreach) -> None:
        self.spec, self.region = spec, spec.region
        self.text = SourceWriter(name, spec.arguments, wide=False)
        self.values = Values(self.text)
        self.vector = vector_of(spec.region)
        self.pointers: list[str] = []
        self.flag: Index = 0

    def source(self) -> Source:
        text, sizes = self.text, self.spec.sizes
        place = text.set(text.call("placed", self.spec.chunks, text.here("block")))
        group, chunk = (text.set(text.call("part", (i,), place)) for i in range(2))
        self.pointers = self._pointers(group)
        self.flag = text.plus(group, self.spec.first)
        thread = text.here("thread")
        whole = [size // self.vector * self.vector for size in sizes]
        first = text.plus(text.times(chunk, _BLOCK_THREADS * _THREAD_ELEMENTS), text.times(thread, self.vector))
        numbers = text.ramp(first, _THREAD_ELEMENTS // self.vector, _BLOCK_THREADS * self.vector)
        self._elements(numbers, self.vector, self._below(numbers, whole, group))
        rest = [size - full for size, full in zip(sizes, whole)]
        if any(rest):
            mine = text.both(text.below(chunk, 1), self._below(thread, rest, group))
            self._elements(text.plus(thread, text.set(text.call("chosen", whole, group))), 1, mine)
        return text.source(_BLOCK_THREADS)

    def _below(self, numbers: Index, limits: Sequence[int], group: str) -> str:
        text = self.text
        limit = text.set(text.call("chosen", limits, group))
        return text.set(text.call("below", (), text.known(numbers), limit))

    def _pointers(self, group: str) -> list[str]:
        """Pointers to the region's inputs and outputs."""
        text, count, found, place = self.text, len(self.spec.sizes), [], 0
        for own, accesses in zip(self.spec.own, (self.region.inputs, self.region.outputs)):
            for i in range(own):
                found.append(text.set(text.call("pointer", (place + i, own, count, text.arguments), group)))
            place += own * count
            found += [f"p{place + i}" for i in range(len(accesses) - own)]
            place += len(accesses) - own
        return found

    def _elements(self, numbers: Index, vector: int, mask: str | None) -> None:
        text, region = self.text, self.region
        assert mask is not None and not region.indices
        [stage] = region.stages
        known: list[Reg | None] = []
        for number, access in enumerate(region.inputs):
            place = (vector, text.known(numbers), mask) if _along(access) else (1, text.known(0))
            head = "load_if" if _along(access) else "load"
            found = text.set(text.call(head, (access.dtype, place[0]), self.pointers[number], *place[1:]))
            known.append(Reg(found, access.dtype) if number in used_values(stage) else None)
        known.append(None)  # the index
        for let in stage.lets:
            assert isinstance(let, Let)
            known.append(Reg(text.set(self.values.evaluate(let.expr, known, let.dtype).text), let.dtype))
        outputs = self.pointers[len(region.inputs) :]
        for store in stage.stores:
            reg, access = known[store.value], region.outputs[store.output]
            assert reg is not None and access.dtype.computed is reg.held
            arguments = (outputs[store.output], text.known(numbers), reg.text, mask)
            text.write(text.call("store_if", (access.dtype, vector), *arguments))
        for flag in stage.flags:
            reg = known[flag.value]
            assert reg is not None
            there = text.call("each", (vector,), mask) if vector > 1 else mask
            raised = text.set(text.call("and", (), reg.text, there))
            text.write(text.call("raise_flag", (), outputs[flag.output], text.known(self.flag), raised))


@dataclass(frozen=True)
class _Group:
    """A size with its own reads and writes."""

    size: int
    reads: Sequence[Argument]
    writes: Sequence[Argument]


def _launches(
    template: Region,
    groups: Sequence[_Group],
    reads: Sequence[Argument] = (),
    writes: Sequence[Argument] = (),
    first: int = 0,
) -> list[Launch]:
    """Launches for all groups, each with as many groups as a kernel has room for arguments. ``reads`` and ``writes``
    are shared by all. ``first``: index of the first group's element in the shared outputs."""
    each = len(groups[0].reads) + len(groups[0].writes)
    most = (MAX_POINTERS - len(reads) - len(writes)) // each
    found = []
    for start in range(0, len(groups), most):
        some = groups[start : start + most]
        own_reads, own_writes = [v for g in some for v in g.reads], [v for g in some for v in g.writes]
        spec = Foreach(promote_f32(template), tuple(g.size for g in some), first + start)
        found.append(Launch(spec, (*own_reads, *reads), (*own_writes, *writes)))
    return found


@lowers("multi_update", target="cuda")
def multi_update(node: Node) -> list[Launch]:
    """Lowers a ``multi_update``: clears the flags, then runs all updates in one launch if ``together`` is set."""
    clear, *steps = optimizer.multi_update(node)
    if "together" not in node.attrs:
        return [clear, *steps]
    op, each = member(node.attrs)
    _, grads, scalars = parted(node.inputs, op)
    sizes = [math.prod(grad.type.ints) for grad in grads]
    shape = (max(2, *sizes),)  # an axis of one element would be dropped
    template = optimizer.region(op.name, each, node.types[0].dtype, shape, op.slots, grad=grads[0].type.dtype)
    groups = [_Group(size, step.reads[:-2], step.writes[:-1]) for size, step in zip(sizes, steps)]
    return [clear, *_launches(template, groups, scalars, node.outputs[-1:])]


@lowers("casts", target="cuda")
def casts(node: Node) -> list[Launch]:
    """Lowers ``casts`` to one launch."""
    sizes = [math.prod(t.ints) for t in node.types]
    source, target = (Access(v.type.dtype, (1,)) for v in (node.inputs[0], node.outputs[0]))
    builder = RegionBuilder((max(2, *sizes),), (), [source], [target])
    builder.row()
    builder.store(0, builder.let(argument(0), target.dtype))
    groups = [_Group(size, (x,), (y,)) for size, x, y in zip(sizes, node.inputs, node.outputs)]
    return _launches(builder.region(), groups)


@lowers("nonfinite", target="cuda")
def nonfinite(node: Node) -> list[Launch]:
    """Lowers a ``nonfinite``: clears the flags, then checks runs of adjacent non-empty tensors with one dtype in one
    launch each."""
    clear, *_ = optimizer.nonfinite(node)
    found, first = [clear], 0
    for (dtype, some), several in groupby(node.inputs, lambda value: (value.type.dtype, value.type.bytes > 0)):
        values = list(several)
        if some:
            groups = [_Group(math.prod(value.type.ints), (value,), ()) for value in values]
            template = optimizer.check_finite(dtype, (max(2, *(group.size for group in groups)),))
            found += _launches(template, groups, writes=node.outputs, first=first)
        first += len(values)
    return found
