"""Calls of libraries by the algorithms that measurements chose."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dslc.compiler.codegen.cuda.contraction.vendor import vendor_call
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.target import LibraryCall
from dslc.compiler.ir.choice import Choice, impossible
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.runtime.artifact.instructions import Gemm, GraphOp

_ALIGNMENT: Final = 256  # bytes; of a workspace
#: cuDNN's name of a plan: an engine and its knobs, ``eng62_k2=5_k3=0``.
_PLAN: Final = re.compile(r"eng(0|[1-9][0-9]{0,8})((?:_k(?:0|[1-9][0-9]{0,8})=(?:0|-?[1-9][0-9]{0,8}))*)", re.ASCII)
#: The configuration of a cuBLASLt algorithm, ``id=66 tile=20 stages=35 ...``.
_CONFIGURATION: Final = re.compile(r"[a-z]{1,16}=[0-9]{1,10}(?: [a-z]{1,16}=[0-9]{1,10}){0,15}", re.ASCII)


@described("Chosen", "call algorithm")
@dataclass(frozen=True)
class Chosen:
    """``call`` by ``algorithm``, which is not empty, in the words of its library."""

    call: LibraryCall
    algorithm: str

    @property
    def library(self) -> str:
        """As for the call."""
        return self.call.library

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """As for the call."""
        return self.call.shapes

    def instruction(self, operands: Sequence[int], workspace: int, where: int) -> Gemm | GraphOp:
        """The call's, with the algorithm."""
        made = self.call.instruction(operands, workspace, where)
        if isinstance(made, Gemm):
            return replace(made, algorithm=self.algorithm.encode("ascii"))
        assert isinstance(made, GraphOp)
        engine, knobs = _engine_and_knobs(self.algorithm)
        return replace(made, engine=engine, knobs=knobs)


def chosen_call(node: Node, choice: Choice) -> Launch:
    """The library call that a choice names, with the workspace that its algorithm needs. BuildError E0609 if the
    library does not compute the node, or does not write algorithms like this."""
    found = vendor_call(node)
    if not isinstance(found, Launch):
        raise impossible(node, choice, f"no library is called for it: {found or 'it is no contraction'}")
    if found.spec.library != choice.provider:
        raise impossible(node, choice, f"its library is {found.spec.library}")
    if not choice.algorithm:
        return found
    if not (_PLAN if choice.provider == "cudnn" else _CONFIGURATION).fullmatch(choice.algorithm):
        raise impossible(node, choice, f"{choice.provider} does not write algorithms like this")
    whole = -(-choice.workspace // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT
    *results, _ = found.writes
    return Launch(Chosen(found.spec, choice.algorithm), found.reads, (*results, Scratch(0, whole)))


def _engine_and_knobs(plan: str) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The numbers in cuDNN's name of a plan."""
    match = _PLAN.fullmatch(plan)
    assert match is not None, plan
    pairs = [text.split("=") for text in match[2].split("_k")[1:]]
    return int(match[1]), tuple((int(knob), int(value)) for knob, value in pairs)
