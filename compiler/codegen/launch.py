"""Launches: the kernels that a node becomes on a target, each a frozen description that the target emits."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from dslc.compiler.ir.described import canonical
from dslc.compiler.ir.graph import Node, Value

if TYPE_CHECKING:
    from dslc.compiler.codegen.target import Geometry

#: Arguments by value, after the buffers: ("i32" | "i64" | "f32" | "f64", value) each.
ScalarArgs: TypeAlias = tuple[tuple[str, int | float], ...]


@dataclass(frozen=True, slots=True)
class Scratch:
    """Block ``number`` of a node's scratch memory. Its initial content is undefined; it is free after the node."""

    number: int
    bytes: int


#: What a launch reads or writes.
Argument: TypeAlias = Value | Scratch


class SizeGeneric(ABC):
    """A size-generic launch description: its code also serves launches of other sizes."""

    @property
    @abstractmethod
    def code(self) -> Any:
        """The description of the code; its ``canonical`` text is complete."""

    @property
    @abstractmethod
    def scalar_args(self) -> ScalarArgs:
        """The scalar arguments of this launch."""

    @property
    @abstractmethod
    def geometry(self) -> Geometry:
        """The launch geometry."""


@dataclass(frozen=True)
class Launch:
    """A kernel and its arguments. The ``canonical`` text of ``spec`` is complete: equal text, equal code.

    ``reads`` and ``writes`` are in the order of the kernel's arguments, reads first. ``prototype``: a launch with the
    same ``spec`` whose code is reused; ``with_spec`` changes the kernel, ``on_values`` the arguments.
    """

    spec: Any
    reads: tuple[Value | Scratch, ...]
    writes: tuple[Value | Scratch, ...]
    prototype: Launch | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        assert self.prototype is None or self.prototype.spec is self.spec, "code of another kernel would be reused"

    def with_spec(self, spec: Any) -> Launch:
        """The launch of another kernel on the same values."""
        return Launch(spec, self.reads, self.writes)

    def on_values(self, place: Mapping[Value, Value]) -> Launch:
        """The launch of the same kernel on other values."""
        reads, writes = (
            tuple([x if isinstance(x, Scratch) else place[x] for x in xs]) for xs in (self.reads, self.writes)
        )
        return Launch(self.spec, reads, writes, self.prototype or self)

    @property
    def scratch(self) -> tuple[Scratch, ...]:
        """The scratch blocks among the arguments."""
        return tuple(x for x in (*self.reads, *self.writes) if isinstance(x, Scratch))

    @cached_property
    def code(self) -> Any:
        """The description of the kernel's code."""
        if self.prototype is not None:
            return self.prototype.code
        return self.spec.code if isinstance(self.spec, SizeGeneric) else self.spec

    @property
    def scalar_args(self) -> ScalarArgs:
        """The arguments by value, after the buffers."""
        return self.spec.scalar_args if isinstance(self.spec, SizeGeneric) else ()

    @cached_property
    def symbol(self) -> str:
        """``k_`` and a digest of the code's description."""
        if self.prototype is not None:
            return self.prototype.symbol
        return "k_" + hashlib.sha256(canonical(self.code).encode()).hexdigest()[:24]


def inplace_pairs(node: Node) -> list[tuple[Value, Value]]:
    """The pairs of an input and an output of the node that may share memory."""
    return [
        (node.inputs[i], node.outputs[o])
        for i, o in node.op.in_place(node)
        if i < len(node.inputs) and o < len(node.outputs)
    ]
