"""The compiler's side of a vendor's library: which nodes it computes, and the instruction that asks it to.

Such a launch has no code of its own: its description becomes a ``Gemm`` or a ``GraphOp`` instruction. The choice of
nodes depends only on the architecture, shapes and dtypes, so any machine builds the same artifact. The algorithm is
chosen on the GPU that runs it, or by a measured ``Choice``, which may also decide for an own kernel, or for a library
where an own kernel is the rule. Sums are f32 (f64 of f64). Tensor cores process f32 only if a node says tf32.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from dslc.compiler.codegen.target import LibraryCall
from dslc.compiler.ir.graph import Node
from dslc.compiler.ops.attrs import flag_attr
from dslc.runtime.artifact.instructions import Instruction

#: Most bytes of workspace that an algorithm may use, plus some for alignment.
WORKSPACE: Final = (32 << 20) + 256
#: The workspace estimate of a small call: bytes for counters, and a copy of the result per ``_ADDED_AT_ONCE`` products
#: of a sum. A library may share a sum among blocks that each add that many.
_COUNTER_BYTES: Final = 64 << 10
_ADDED_AT_ONCE: Final = 32
#: Fewest multiply-adds that are worth a call: below, a launch takes longer than the contraction.
MIN_WORK: Final = 1 << 20
MAX_ELEMENTS: Final = 2**31  # of a tensor, for libraries that use 32-bit indices

Shape: TypeAlias = tuple[int, ...]


class Call(LibraryCall, Protocol):
    """A library's call for a node."""

    @property
    def room(self) -> int:
        """Bytes of its workspace, by an algorithm that the library chooses; with some for alignment."""

    def instruction(self, operands: Sequence[int], workspace: int, where: int, algorithm: str = "") -> Instruction:
        """The call on buffers of a plan, by an algorithm of the library's form. Without one, the library chooses on the
        GPU that runs it."""


@dataclass(frozen=True, slots=True)
class NoCall:
    """Own kernels compute a node. ``why`` the library for its op is not called; None if no library is for its op."""

    why: str | None


#: The answer for ops that a library is not for.
NOT_FOR_IT: Final = NoCall(None)


@dataclass(frozen=True, slots=True)
class Library:
    """``name``: in instructions. ``call``: the call for a node, or why there is none; sizes are ints, and none of the
    result's is 0. ``algorithm``: the form of the texts of its algorithms. ``own``: why an own kernel of an
    architecture, such as ``sm_90``, computes a node that has a call unless a measured choice names the library; None if
    the call does."""

    name: str
    call: Callable[[Node], Call | NoCall]
    algorithm: re.Pattern[str]
    own: Callable[[Node, str], str | None] = lambda node, architecture: None


def shared_room(product: tuple[int, int, int, int], most: int = WORKSPACE) -> int:
    """Workspace bytes of a contraction, which consecutive calls share: at most ``most``, or the need of a small call.
    That is both factors copied in f32 (an image as its patches) and the parts of sums. ``product``: how many matrices,
    their rows and columns, and how many products each element sums."""
    count, rows, columns, added = product
    parts = -(-added // _ADDED_AT_ONCE)
    need = 4 * count * (rows * added + added * columns + rows * columns * parts) + _COUNTER_BYTES
    return min(most, -(-need // 256) * 256 + 256)


def is_small(multiply_adds: int) -> bool:
    """True if a contraction is not worth a call."""
    return multiply_adds < MIN_WORK


def compute_of(node: Node) -> Literal["f32", "tf32"]:
    """The dtype to which f32 factors may be rounded."""
    return "tf32" if flag_attr(node.attrs, "tf32") else "f32"
