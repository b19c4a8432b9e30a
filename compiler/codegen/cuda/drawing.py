"""Random ops as kernels: ``Draw`` of ``codegen/random.py``, one draw of Philox a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from dslc.compiler.codegen import random
from dslc.compiler.codegen.cuda.cpp import C_TYPES, Code, Numbers, register_sized
from dslc.compiler.codegen.launch import Given, Launch
from dslc.compiler.codegen.random import Draw
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node

_THREADS: Final = 256
_MODES: Final = ("uniform", "normal", "dropout")


@dataclass(frozen=True)
class Drawn:
    """The kernel of a ``Draw``, its numbers behind its arguments."""

    draw: Draw

    @property
    def geometry(self) -> Geometry:
        each = 8 if self.draw.kind == "dropout" else 4
        threads = self.draw.elements // each + 2  # the first and the last draw may reach beyond the tensor
        return Geometry((-(-threads // _THREADS), 1, 1), (_THREADS, 1, 1))

    @property
    def _numbers(self) -> Numbers:
        d = self.draw
        numbers = Numbers()
        for name, value in (("KEY", d.key), ("ELEMENTS", d.elements), ("ROW_ELEMENTS", d.row_elements)):
            numbers.add(name, value - (1 << 64) if value >> 63 else value, "i64")
        if d.kind == "dropout":
            numbers.add("LEAST", int(d.low))
            numbers.add("SCALE", d.high, d.dtype.computed.value)
        else:
            numbers.add("LOW", d.low, "f32")
            numbers.add("HIGH", d.high, "f32")
        return numbers

    @property
    def given(self) -> Given:
        return self._numbers.given

    @property
    def code(self) -> Code:
        d = self.draw
        text = f"#define MODE {_MODES.index(d.kind)}\n#define STEPPED {int(d.stepped)}\n"
        text += f"using T = {C_TYPES[d.dtype]};\nusing WIDE = {C_TYPES[d.dtype.computed]};\n"
        return Code("draw.cu", text + self._numbers.text())


register_sized(Drawn)


def _lower(function: Callable[[Node], list[Launch] | None], node: Node) -> list[Launch] | None:
    launches = function(node)
    if launches is None:
        return None
    return [replace(x, spec=Drawn(x.spec)) if isinstance(x.spec, Draw) else x for x in launches]


LOWERED: Final[Mapping[str, Callable[[Node], list[Launch] | None]]] = {
    name: partial(_lower, function) for name, function in random.LOWERED.items()
}
