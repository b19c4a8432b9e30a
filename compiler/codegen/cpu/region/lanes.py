"""Emits the values of several rows, or of several elements of a row, at once: one in each lane of a vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from dslc.compiler.codegen.cpu.llvm.values import Values, is_vector
from dslc.compiler.codegen.cpu.llvm.writer import I8, Reg
from dslc.compiler.codegen.region.ir import Access, Fetch, Let, SetFlag, Stage, Store

if TYPE_CHECKING:
    from dslc.compiler.codegen.cpu.region.kernel import Emitter


@dataclass
class Lanes:
    """``known``: the region's values so far, by number; None for one that this stage does not need. ``bases``: the
    index of the first lane's element in each input. ``stride``: the distance between neighbouring lanes in an argument,
    in elements."""

    emitter: Emitter
    values: Values
    known: list[Reg | None]
    bases: list[Any]
    stride: Callable[[Access], int]

    def compute(self, let: Let | Fetch) -> Reg:
        """Evaluates or gathers the next value."""
        if isinstance(let, Let):
            return self.values.evaluate(let.expr, self.known, let.dtype)
        access, pointer = self.emitter.region.inputs[let.input], self.emitter.inputs[let.input]
        mask = None if let.mask is None else self.known[let.mask]
        base, index = self.bases[let.input], self.value(let.index)
        return self.values.gather(pointer, base, self.stride(access), index, mask, access.dtype)

    def store(self, stage: Stage, bases: list[Any]) -> None:
        """The stage's stores and flags. ``bases``: as for inputs, of the outputs."""
        for store in stage.stores:
            self._store(store, bases[store.output])
        for flag in stage.flags:
            self._set_flag(flag)

    def value(self, number: int) -> Reg:
        reg = self.known[number]
        assert reg is not None, f"value {number} has not been computed"
        return reg

    def _store(self, store: Store, base: Any) -> None:
        reg, access = self.value(store.value), self.emitter.region.outputs[store.output]
        assert reg.dtype is access.dtype
        self.values.store(self.values.in_lanes(reg), self.emitter.outputs[store.output], base, self.stride(access))

    def _set_flag(self, flag: SetFlag) -> None:
        """Sets the flag if any lane asks for it."""
        emitter, reg = self.emitter, self.value(flag.value)
        is_set = reg.value
        if is_vector(reg):
            bits = emitter.b.bitcast(is_set, ir.IntType(self.values.lanes))
            is_set = emitter.b.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))
        with emitter.b.if_then(is_set, likely=False):
            offset = emitter.offset(emitter.region.outputs[flag.output])
            place = emitter.code.at(emitter.outputs[flag.output], offset, I8)
            emitter.b.store(ir.Constant(I8, 1), place, align=1)
