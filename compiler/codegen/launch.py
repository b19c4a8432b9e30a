"""What a node becomes on a target: launches of kernels, each a frozen description that a target prints."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from dslc.compiler.ir.graph import Value


@dataclass(frozen=True, slots=True)
class Scratch:
    """Block ``number`` of a node's scratch memory: of any content before, and free again when the node is done."""

    number: int
    bytes: int


@dataclass(frozen=True)
class Launch:
    """A kernel and the values it is called with. ``spec`` is data whose ``repr`` says all: equal text, equal code.

    ``reads`` and ``writes`` in the order of the kernel's arguments, reads first.
    """

    spec: Any
    reads: tuple[Value | Scratch, ...]
    writes: tuple[Value | Scratch, ...]

    @property
    def scratch(self) -> tuple[Scratch, ...]:
        """The scratch blocks among the arguments."""
        return tuple(x for x in (*self.reads, *self.writes) if isinstance(x, Scratch))

    @property
    def symbol(self) -> str:
        """``k_`` and a digest of the description."""
        return "k_" + hashlib.sha256(repr(self.spec).encode()).hexdigest()[:24]
