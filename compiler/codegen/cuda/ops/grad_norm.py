"""The global norm for gradient clipping: one launch sums the squares of many tensors, another one adds the sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from dslc.compiler.codegen.cuda.hardware import MAX_POINTERS, WARP
from dslc.compiler.codegen.cuda.region.source import Source, SourceKernel
from dslc.compiler.codegen.cuda.region.values import Reg, Values
from dslc.compiler.codegen.cuda.region.writer import SourceWriter
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import grad_norm
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.index_limits import I32_ELEMENTS
from dslc.compiler.ir.scalar import argument
from dslc.compiler.ir.types import DType

_BLOCK_THREADS: Final = 256
_VECTOR: Final = 8  # neighbours that a thread loads, of any dtype: so the order of a sum depends on sizes alone
_HELD: Final = 4  # such vectors of a thread: 64 KiB or more under way in each multiprocessor
_CHUNK: Final = _BLOCK_THREADS * _VECTOR * _HELD


@described("Squares", "dtype result sizes starts")
@dataclass(frozen=True)
class Squares(SourceKernel):
    """``k(tensors..., sums)``: the sum of squares of each chunk of 8192 elements of tensors of ``sizes``, all of
    ``dtype``; a block has one chunk. The sums of a tensor, of dtype ``result``, are stored from its ``starts`` on.

    A thread adds its elements in pairs, and so do the threads of a block: an element takes part in 14 additions.
    """

    dtype: DType
    result: DType
    sizes: tuple[int, ...]
    starts: tuple[int, ...]

    @property
    def chunks(self) -> tuple[int, ...]:
        """Blocks per tensor."""
        return tuple(-(-size // _CHUNK) for size in self.sizes)

    @property
    def geometry(self) -> Geometry:
        return Geometry((sum(self.chunks), 1, 1), (_BLOCK_THREADS, 1, 1))

    def source(self, name: str) -> Source:
        """The source of the kernel: whole vectors of a chunk, and in a tensor's first chunk the tensor's rest."""
        text = SourceWriter(name, len(self.sizes) + 1, wide=False)
        block, thread = text.here("block"), text.here("thread")
        place = text.set(text.call("placed", self.chunks, block))
        group, chunk = (text.set(text.call("part", (i,), place)) for i in range(2))
        tensor = text.set(text.call("pointer", (0, 1, len(self.sizes), text.arguments), group))
        whole = [size // _VECTOR * _VECTOR for size in self.sizes]
        end = text.set(text.call("chosen", whole, group))
        first = text.plus(text.times(chunk, _CHUNK), text.times(thread, _VECTOR))
        at = text.known(text.ramp(first, _HELD, _BLOCK_THREADS * _VECTOR))
        found = self._squared(text, _VECTOR, tensor, at, text.below(at, end))
        for groups, lanes in ((_HELD, _VECTOR), (_VECTOR, 1)):
            found = text.set(text.call("fold", ("sum", groups, lanes), found))
        rest = [size - full for size, full in zip(self.sizes, whole)]
        if any(rest):
            there = text.below(thread, text.set(text.call("chosen", rest, group)))
            mine = text.both(text.below(chunk, 1), there)
            assert mine is not None
            last = self._squared(text, 1, tensor, text.known(text.plus(end, thread)), mine)
            found = text.set(text.call("add", (), found, last))
        found = text.set(text.call("group", ("sum", WARP), found))
        found = text.set(text.call("warps", ("sum", _BLOCK_THREADS // WARP, 0, 1), found))
        at = text.known(text.plus(text.set(text.call("chosen", self.starts, group)), chunk))
        text.write(text.call("store_if", (self.result, 1), f"p{len(self.sizes)}", at, found, text.below(thread, 1)))
        return text.source(_BLOCK_THREADS)

    def _squared(self, text: SourceWriter, vector: int, tensor: str, at: str, mask: str) -> str:
        """The squares of loaded elements; 0 where the mask is false."""
        loaded = text.set(text.call("load_if", (self.dtype, vector), tensor, at, mask))
        values = Values(text)
        x = text.set(values.convert(Reg(loaded, self.dtype), self.result).text)
        return text.set(values.evaluate(argument(0) * argument(0), [Reg(x, self.result)], self.result).text)


@lowers("global_norm", target="cuda")
def global_norm(node: Node) -> list[Launch]:
    """One launch for up to 500 tensors of one dtype, then the root of the total of all sums, which are in the order of
    the inputs. A tensor with 2^31 elements or more has launches of its own, whose indices are wide."""
    result, place, huge = node.types[0].dtype, 0, list[tuple[Value, int]]()
    tensors: dict[DType, list[tuple[Value, int, int]]] = {}  # with their sizes and the places of their sums
    for value in node.inputs:
        size = math.prod(value.type.ints)
        if size >= I32_ELEMENTS:
            huge.append((value, place))
        elif size:
            tensors.setdefault(value.type.dtype, []).append((value, size, place))
        place += -(-size // (_CHUNK if size < I32_ELEMENTS else grad_norm.BLOCK_ELEMENTS))
    sums = Scratch(0, max(1, place) * result.itemsize)
    found = [launch for value, at in huge for launch in grad_norm.squares(value, result, sums, at)]
    for dtype, listed in tensors.items():
        for start in range(0, len(listed), MAX_POINTERS):
            values, sizes, starts = zip(*listed[start : start + MAX_POINTERS], strict=True)
            found.append(Launch(Squares(dtype, result, sizes, starts), values, (sums,)))
    return [*found, grad_norm.root(node, sums, place)]
