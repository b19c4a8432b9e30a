"""Lowers equal nodes once: nodes that differ only in names, spans and phases share their launches.

The kernels of a node depend on its op, attributes and types, and on which of its inputs are the same tensor. Most
layers of a model are equal in these, and so are the model's entries and the candidate programs of the plans that are
tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.targets import target_of
from dslc.compiler.ir.choice import Choice
from dslc.compiler.ir.fault import PackageFault
from dslc.compiler.ir.graph import Attrs, Input, Kind, Node
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.types import TensorType

_REMEMBERED: Final = 4096  # nodes that differ


def lowered(node: Node, target: str, vendor: bool, choice: Choice | None = None) -> Sequence[Launch] | None:
    """The launches that compute a node on a target, as ``Target.lower`` returns them; None if it has no kernel."""
    number = {v: i for i, v in enumerate(dict.fromkeys(node.inputs))}
    read = tuple([number[v] for v in node.inputs])
    attrs = _Attrs(repr(sorted(node.attrs.items())), node.attrs)
    key = _Key(node.op.name, tuple([v.type for v in number]), read, node.types, attrs)
    try:
        first, launches = _first(key, target, vendor, choice)
    except PackageFault as fault:
        raise fault.at(node.span) from fault.__cause__
    if launches is None:
        return None
    place = dict(zip((*first.inputs, *first.outputs), (*node.inputs, *node.outputs)))
    return [launch.on_values(place) for launch in launches]


@dataclass(frozen=True, slots=True)
class _Attrs:
    """Attributes compared by their text: values that Python calls equal, e.g. 0.0 and -0.0, need different code."""

    text: str
    attrs: Attrs = field(compare=False)


class _Key(NamedTuple):
    """What the launches of a node depend on: ``types`` of the distinct tensors that it reads in the order ``read``."""

    op: str
    types: tuple[TensorType, ...]
    read: tuple[int, ...]
    results: tuple[TensorType, ...]
    attrs: _Attrs

    def node(self) -> Node:
        """A node that differs from the others of this key only in names, spans and phases."""
        values = [Input(f"x{i}", Kind.DATA, type).value for i, type in enumerate(self.types)]
        return Node(OPS[self.op], tuple(values[i] for i in self.read), self.results, self.attrs.attrs)


@lru_cache(maxsize=_REMEMBERED)
def _first(key: _Key, target: str, vendor: bool, choice: Choice | None) -> tuple[Node, Sequence[Launch] | None]:
    """A node of this key, and its launches."""
    node = key.node()
    return node, target_of(target, vendor).lower(node, choice)
