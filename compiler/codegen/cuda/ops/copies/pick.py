"""``pick``: elements of several vectors, one per thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dslc.compiler.codegen.cuda.region.source import Source, SourceKernel
from dslc.compiler.codegen.cuda.region.writer import SourceWriter
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_tuple

_BLOCK_THREADS: Final = 128


@described("Picked", "dtype count sources places")
@dataclass(frozen=True)
class Pick(SourceKernel):
    """Element i of the result is element ``places[i]`` of argument ``sources[i]``, of ``count`` arguments."""

    dtype: DType
    count: int
    sources: tuple[int, ...]
    places: tuple[int, ...]

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-len(self.sources) // _BLOCK_THREADS), 1, 1), (_BLOCK_THREADS, 1, 1))

    def source(self, name: str) -> Source:
        """The source of the kernel. Threads past the end load element 0 and store nothing."""
        text = SourceWriter(name, self.count + 1, wide=False)
        number = text.plus(text.times(text.here("block"), _BLOCK_THREADS), text.here("thread"))
        mask = text.below(number, len(self.sources))
        padding = (0,) * (self.geometry.grid[0] * _BLOCK_THREADS - len(self.sources))
        source, place = (
            text.set(text.call("chosen", (*table, *padding), number)) for table in (self.sources, self.places)
        )
        pointer = text.set(text.call("pointer", (0, 1, self.count, text.arguments), source))
        value = text.set(text.call("load", (self.dtype, 1), pointer, place))
        text.write(text.call("store_if", (self.dtype, 1), f"p{self.count}", text.known(number), value, mask))
        return text.source(_BLOCK_THREADS)


@lowers("pick", target="cuda")
def pick(node: Node) -> list[Launch]:
    sources, places = int_tuple(node.attrs, "source"), int_tuple(node.attrs, "place")
    spec = Pick(node.types[0].dtype, len(node.inputs), sources, places)
    return [Launch(spec, node.inputs, node.outputs)]
