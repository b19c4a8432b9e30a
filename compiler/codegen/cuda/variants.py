"""The ways in which own kernels compute a node: the names of variants, and their launches."""

from __future__ import annotations

from dslc.compiler.codegen.cuda.contraction import variants as contraction
from dslc.compiler.codegen.cuda.lower import finished, lower
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.choice import Choice, impossible
from dslc.compiler.ir.graph import Node


def variants(node: Node) -> tuple[str, ...]:
    """The names, the default's empty one first; empty if the node has no kernel."""
    default = lower(node)
    return () if default is None else ("", *contraction.names(node)) if default else ("",)


def lower_variant(node: Node, choice: Choice) -> list[Launch] | None:
    """The launches of the variant that ``choice.algorithm`` names. BuildError E0609 if the node has no such variant."""
    if not choice.algorithm:
        return lower(node)
    launches = contraction.lowered(node, choice.algorithm) if lower(node) else None
    if launches is None:
        raise impossible(node, choice, "its kernels have no such variant")
    return finished(node, launches)
