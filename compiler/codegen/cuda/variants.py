"""The ways in which own kernels compute a node: the names of variants, and their launches.

Contractions vary in tile and split, attention in the tiles of its kernels, other sums in the shape of their launch and
in whether long rows are split into parts, kernels without sums in the length of their vectors. A loop may be one
resident kernel instead of those of its body.
"""

from __future__ import annotations

from typing import Final

from dslc.compiler.codegen.cuda.attention import variants as attention
from dslc.compiler.codegen.cuda.contraction import variants as contraction
from dslc.compiler.codegen.cuda.kernel_spec import Unfit
from dslc.compiler.codegen.cuda.lower import for_gpu, lower
from dslc.compiler.codegen.cuda.recurrent.lower import resident, why_not_resident
from dslc.compiler.codegen.cuda.region import variants as region
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.choice import Choice, impossible
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scan import scan

_WHOLE: Final = "split=1"  # rows are not split, although the default splits them
#: A loop is one kernel whose blocks wait for one another in each step, instead of the kernels of its body.
RESIDENT: Final = "resident"


def variants(node: Node) -> tuple[str, ...]:
    """The names, the default's empty one first; empty if the node has no kernel. A loop's empty name stands for the
    kernels of its body."""
    if node.op is scan:
        return ("",) if why_not_resident(node) is not None else ("", RESIDENT)
    default = lower(node)
    if not default:
        return () if default is None else ("",)
    whole = (_WHOLE,) if lower(node, _never) != default else ()
    return ("", *contraction.names(node), *(attention.names(default) or region.names(default)), *whole)


def lower_variant(node: Node, choice: Choice) -> list[Launch] | None:
    """The launches of the variant that ``choice.algorithm`` names. BuildError E0609 if the node has no such variant."""
    default, name = lower(node), choice.algorithm
    if node.op is scan and name == RESIDENT:
        try:
            return resident(node)
        except Unfit as why:
            raise impossible(node, choice, str(why)) from why
    if not name:
        return default
    found: list[Launch] | None = None
    if default:
        tiled = contraction.lowered(node, name)
        whole = lower(node, _never) if name == _WHOLE else default
        if whole != default:
            found = whole
        elif tiled is not None:
            found = for_gpu(node, tiled)
        else:
            found = attention.lowered(default, name) or region.lowered(default, name)
    if found is None:
        raise impossible(node, choice, "its kernels have no such variant")
    return found


def _never(_: object) -> None:
    """Chooses no split."""
