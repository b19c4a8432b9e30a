"""Names in a plan (ports, constants, the labels of nodes), and attributes as JSON data."""

from __future__ import annotations

import os.path
from typing import Any, Final

from dslc.compiler.ir.graph import Attr, Body, Input, Node
from dslc.compiler.ir.sizes import Poly
from dslc.compiler.ir.types import DType
from dslc.runtime.artifact.attributes import plain_float

_LONGEST_FILE: Final = 100  # characters of a file's name in a plan


def constant_blob(source: Input) -> str:
    """The name of the blob that holds a constant: equal constants share it."""
    assert source.stored is not None, f"the constant {source.name} has no numbers"
    return f"constant.{source.value.type.dtype}.{source.stored.digest[:24]}"


def output_port(entry: str, output: str) -> tuple[str, str]:
    """The name and kind of the port of a graph's output.

    ``result.y`` -> ``y``, result; ``metric.m`` -> ``metric.m``, metric; ``partial.0.sum`` -> ``partial.0``,
    partial.sum; ``count.0``, count; ``loss``, ``nonfinite``, ``loss_scale`` and ``skipped_steps``, one of each.
    """
    family, _, rest = output.partition(".")
    match family:
        case "result":
            return rest, "result"
        case "partial":
            name, _, combine = rest.rpartition(".")
            assert combine in ("sum", "max", "min"), f"{entry} has an output {output}"
            return f"partial.{name}", f"partial.{combine}"
        case "shard":
            return output, "shard"
        case "metric" | "count":
            return output, family
    kinds = {"loss": "loss", "nonfinite": "flags", "loss_scale": "scale", "skipped_steps": "skipped"}
    assert output in kinds, f"{entry} has an output {output}"
    return output, kinds[output]


def where(node: Node) -> str:
    """A label for people: the node's path and its source line, ``c1.weight lenet.nn:7``. The label has only the file's
    base name, so the bytes do not depend on the folder."""
    if node.span is None:
        return node.name or node.op.name
    file = os.path.basename(node.span.source.path)
    shown = "".join(c if c.isprintable() else "?" for c in file)[-_LONGEST_FILE:]
    return f"{node.name or node.op.name} {shown}:{node.span.line}"


def plain_attr(attr: Attr) -> Any:
    """An attribute as JSON data: dtypes by name, tuples as lists, infinities and nan by name."""
    if isinstance(attr, tuple):
        return [plain_attr(a) for a in attr]
    if isinstance(attr, DType):
        return attr.value
    assert not isinstance(attr, Poly | Body), f"an attribute still has dims: {attr}"
    return plain_float(attr) if isinstance(attr, float) else attr
