"""``pack_bits`` and ``unpack_bits``: a b1 tensor as bits, eight per byte. Passes insert them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

BYTE: Final = 8  # bits


class PackBits(Op):
    """pack_bits(x): element i of ``x``, b1 of a multiple of eight elements in row-major order, is bit ``i % 8`` of byte
    ``i // 8``: u8[elements / 8]."""

    name = "pack_bits"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [x] = types
        if x.dtype is not DType.B1 or prod(x.ints) % BYTE:
            raise Mismatch(f"the bits of {x}", "b1 of a multiple of 8 elements")
        return (TensorType(DType.U8, (prod(x.ints) // BYTE,)),)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("bits are packed after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        return [np.packbits(xs[0].reshape(-1), bitorder="little")]

    def cost(self, node: Node) -> Cost:
        return Cost(0, sum(t.bytes for t in (*node.input_types, *node.types)))


class UnpackBits(Op):
    """unpack_bits(x): the inverse of ``pack_bits``; attribute ``shape``."""

    name = "unpack_bits"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [x], shape = types, int_tuple(attrs, "shape")
        if x.dtype is not DType.U8 or x.ints != (prod(shape) // BYTE,) or prod(shape) % BYTE:
            raise Mismatch(f"{x} as the bits of {shape}", "u8, one for eight elements")
        return (TensorType(DType.B1, shape),)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("bits are packed after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        return [np.unpackbits(xs[0], bitorder="little").astype(np.bool_).reshape(attrs["shape"])]

    def cost(self, node: Node) -> Cost:
        return Cost(0, sum(t.bytes for t in (*node.input_types, *node.types)))


pack_bits = register(PackBits())
unpack_bits = register(UnpackBits())
