"""Emits transposes: reads tiles in the input's layout, transposes them in shared memory, writes them in the
output's.

A thread holds the vectors of the same numbers of a tile in both orientations: along columns for transposed inputs, and
along rows for all other arguments. ``turned`` converts the first into the second.
"""

from __future__ import annotations

from dslc.compiler.codegen.cuda.region.schedule import flattened, needs_wide_index, turned_axis
from dslc.compiler.codegen.cuda.region.source import Source
from dslc.compiler.codegen.cuda.region.thread_mapping import Tiles
from dslc.compiler.codegen.cuda.region.values import Reg, Values
from dslc.compiler.codegen.cuda.region.writer import Index, SourceWriter, power_of_two
from dslc.compiler.codegen.region.ir import Access, Let, Region
from dslc.compiler.codegen.region.queries import used_values


def tiles_source(name: str, region: Region, schedule: Tiles) -> Source:
    """The kernel's source."""
    return _Emitter(name, region, schedule).source()


class _Emitter:
    def __init__(self, name: str, region: Region, schedule: Tiles) -> None:
        self.region, self.schedule, self.vector = flattened(region), schedule, schedule.vector
        self.text = SourceWriter(name, len(region.inputs) + len(region.outputs), needs_wide_index(region))
        self.values = Values(self.text)
        self.slots = 0

    def source(self) -> Source:
        text, cut = self.text, self.schedule
        _, along, last = cut.counts
        tile, self.right = text.divmod(text.here("block"), last)
        others, self.down = text.divmod(tile, along)
        sizes = [size for axis, size in enumerate(cut.sizes[:-1]) if axis != cut.axis]
        self.others = text.unravel(others, sizes)
        self.numbers = text.ramp(text.here("thread"), cut.held, cut.threads)
        self.inside = text.below(self.numbers, cut.vectors) if cut.vectors % cut.threads else None
        self.places = {across: self._tile(across) for across in self._kinds()}
        known = self._loaded()
        for stage in self.region.stages:
            for let in stage.lets:
                assert isinstance(let, Let)
                reg = self.values.evaluate(let.expr, known, let.dtype)
                known.append(Reg(text.set(reg.text), let.dtype))
        shift = len(self.region.inputs)
        for stage in self.region.stages:
            for store in stage.stores:
                found, access = known[store.value], self.region.outputs[store.output]
                assert found is not None
                vector, at, masks = self._place(access, False)
                head = "store_if" if masks else "store"
                pointer = f"p{shift + store.output}"
                text.write(text.call(head, (access.dtype, vector), pointer, at, found.text, *masks))
        return text.source(cut.threads)

    def _kinds(self) -> set[bool]:
        return {turned_axis(a) is not None for a in (*self.region.inputs, *self.region.outputs)}

    def _tile(self, across: bool) -> tuple[list[Index], str | None]:
        """The indices of the first elements of the thread's vectors, and the mask of those in range."""
        text, cut = self.text, self.schedule
        line, first = text.divmod(self.numbers, (cut.tall if across else cut.wide) // cut.vector)
        places = (line, text.times(first, cut.vector))
        row, column = reversed(places) if across else places
        down = text.plus(row, text.times(self.down, cut.tall))
        right = text.plus(column, text.times(self.right, cut.wide))
        masks = [
            text.below(text.known(x), size) if size % tile else None
            for x, size, tile in ((down, cut.sizes[cut.axis], cut.tall), (right, cut.sizes[-1], cut.wide))
        ]
        indices = list(self.others)
        indices.insert(cut.axis, down)
        return [*indices, right], text.both(self.inside, *masks)

    def _loaded(self) -> list[Reg | None]:
        text = self.text
        used = {v for stage in self.region.stages for v in used_values(stage)}
        known: list[Reg | None] = []
        for number, access in enumerate(self.region.inputs):
            if number not in used:
                known.append(None)
                continue
            across = turned_axis(access) is not None
            vector, at, masks = self._place(access, across)
            head = "load_if" if masks else "load"
            found = text.set(text.call(head, (access.dtype, vector), f"p{number}", at, *masks))
            if across:
                self.slots += 1
                cut = self.schedule
                found = text.set(text.call("turned", (cut.tall, cut.wide, cut.vector, cut.threads, self.slots), found))
            elif access.strides[-1] == 0 and self._varies(access) and self.vector > 1:
                found = text.set(text.call("each", (self.vector,), found))
            known.append(Reg(found, access.dtype))
        known.append(None)
        return known

    def _varies(self, access: Access) -> bool:
        """Whether a tile has more than one element of an argument."""
        return access.strides[self.schedule.axis] != 0 or access.strides[-1] != 0

    def _place(self, access: Access, across: bool) -> tuple[int, str, tuple[str, ...]]:
        """Vector width of a load or store, the indices of the first elements, and the mask of those in range."""
        text, axis = self.text, self.schedule.axis if across else len(access.strides) - 1
        indices, mask = self.places[across]
        if not self._varies(access):
            return 1, text.known(text.dot(access.offset, indices, access.strides)), ()
        first, stride = text.dot(access.offset, indices, access.strides), access.strides[axis]
        wanted, vector = self.vector, 1
        if stride == 1:
            others = (s for a, s in enumerate(access.strides) if a != axis)
            vector = power_of_two(wanted, access.offset, *others)
        if stride == 0 or wanted == 1:
            return 1, text.known(first), () if mask is None else (mask,)
        count = wanted // vector
        at = text.known(text.ramp(first, count, vector * stride))
        if mask is not None and count > 1:
            mask = text.set(text.call("each", (count,), mask))
        return vector, at, () if mask is None else (mask,)
