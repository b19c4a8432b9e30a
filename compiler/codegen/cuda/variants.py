"""The ways in which own kernels compute a node: the names of variants, and their launches."""

from __future__ import annotations

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.choice import Choice, impossible
from dslc.compiler.ir.graph import Node


def variants(node: Node) -> tuple[str, ...]:
    """The names, the default's empty one first; empty if the node has no kernel."""
    return () if lower(node) is None else ("",)


def lower_variant(node: Node, choice: Choice) -> list[Launch] | None:
    """The launches of the variant that ``choice.algorithm`` names. BuildError E0609 if the node has no such variant."""
    if choice.algorithm:
        raise impossible(node, choice, "its kernels have no such variant")
    return lower(node)
