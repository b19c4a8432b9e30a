"""The registry of vendor libraries: the one place of the compiler that knows them.

A new library is a file next to this one with a ``LIBRARY``, which is listed here, and its counterpart in the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dslc.compiler.codegen.cuda.libraries import cublaslt, cudnn
from dslc.compiler.codegen.cuda.libraries.library import NOT_FOR_IT, Call, Library, NoCall
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.target import LibraryCall
from dslc.compiler.ir.choice import Choice, impossible
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.runtime.artifact.instructions import Instruction

_ALIGNMENT: Final = 256  # bytes; of a workspace

#: By name. The first one that computes a node is called.
LIBRARIES: Final[Mapping[str, Library]] = MappingProxyType(
    {library.name: library for library in (cublaslt.LIBRARY, cudnn.LIBRARY)}
)


@described("Chosen", "call algorithm")
@dataclass(frozen=True)
class Chosen:
    """``call`` by ``algorithm``, which is not empty, in the words of its library."""

    call: Call
    algorithm: str

    @property
    def library(self) -> str:
        """As for the call."""
        return self.call.library

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """As for the call."""
        return self.call.shapes

    def instruction(self, operands: Sequence[int], workspace: int, where: int) -> Instruction:
        """The call's, with the algorithm."""
        return self.call.instruction(operands, workspace, where, self.algorithm)


def library_call(node: Node, architecture: str) -> Launch | NoCall:
    """The call for a node without a measured choice, on a GPU of an architecture such as ``sm_90``, or why own kernels
    compute it.

    Sizes are ints, and none of the result's is 0.
    """
    answer = NOT_FOR_IT
    for library in LIBRARIES.values():
        call = library.call(node)
        if not isinstance(call, NoCall):
            own = library.own(node, architecture)
            return _launch(node, call, call.room) if own is None else NoCall(own)
        answer = call if answer == NOT_FOR_IT else answer
    return answer


def callable_library(node: Node) -> str | None:
    """The name of the library that can compute a node, also if an own kernel does without a measured choice."""
    calls = ((name, library.call(node)) for name, library in LIBRARIES.items())
    return next((name for name, call in calls if not isinstance(call, NoCall)), None)


def chosen_call(node: Node, choice: Choice) -> Launch:
    """The library call that a choice names, with the workspace that its algorithm needs. BuildError E0609 if the
    library does not compute the node, or does not write algorithms like this."""
    library = LIBRARIES.get(choice.provider)
    if library is None:
        raise impossible(node, choice, f"there is no library {choice.provider}")
    call = library.call(node)
    if isinstance(call, NoCall):
        raise impossible(node, choice, f"{library.name} is not called for it: {call.why or 'it has other ops'}")
    if not choice.algorithm:
        return _launch(node, call, call.room)
    if not library.algorithm.fullmatch(choice.algorithm):
        raise impossible(node, choice, f"{library.name} does not write algorithms like this")
    whole = -(-choice.workspace // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT
    return _launch(node, Chosen(call, choice.algorithm), whole)


def _launch(node: Node, call: LibraryCall, workspace: int) -> Launch:
    return Launch(call, node.inputs, (*node.outputs, Scratch(0, workspace)))
