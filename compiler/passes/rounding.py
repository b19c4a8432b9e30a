"""The mark of products whose factors are rounded to TF32.

The pass ``tf32`` sets it at the end of fusion. A pass before it that asks for the kernels or the measured time of a
node asks for those of the marked node.
"""

from __future__ import annotations

from dslc.compiler.cost import MATRIX_KINDS, kind
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import flag_attr


def tf32_rounded(node: Node) -> Node:
    """The node, marked as tf32 if it is an f32 product or attention that is not."""
    if kind(node) not in MATRIX_KINDS or flag_attr(node.attrs, "tf32") or node.input_types[0].dtype is not DType.F32:
        return node
    return node.replaced(attrs={**node.attrs, "tf32": True})
