"""What a node becomes on a target: launches of kernels, each a frozen description that a target prints."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from dslc.compiler.ir.graph import Value


@dataclass(frozen=True)
class Launch:
    """A kernel and the values it is called with. ``spec`` is data whose ``repr`` says all: equal text, equal code.

    ``reads`` and ``writes`` in the order of the kernel's arguments, reads first.
    """

    spec: Any
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]

    @property
    def symbol(self) -> str:
        """``k_`` and a digest of the description."""
        return "k_" + hashlib.sha256(repr(self.spec).encode()).hexdigest()[:24]
