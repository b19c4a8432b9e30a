"""What a Python package needs to bring ops of its own (docs/own_ops.md); it needs no other module of dslc.

``Formula`` and ``Of1``: pointwise ops, by trees of ``tree``. ``Composed``: ops composed of functions of the language,
with a kernel ``Cuda`` for GPUs if wanted. ``Op``: the parts of any op. ``register`` adds an op; ``Function`` is how a
model calls it.
"""

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import Axes, Axis, Call, Floats, Function, Init, Ints, Number, Numbers, Operand, Shape
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.elementwise.formula import Formula, Of1
from dslc.compiler.ops.packages.composed import Composed, Functions
from dslc.compiler.ops.packages.cuda import Cuda

__all__ = [
    "Attrs", "Axes", "Axis", "Builder", "Call", "Composed", "Cost", "Cuda", "DType", "Expr", "Floats", "Formula",
    "Function", "Functions", "Init", "Ints", "Mismatch", "NoGradient", "Node", "Number", "Numbers", "Of1", "Op",
    "Operand", "Shape", "Size", "TensorType", "Value", "register", "tree",
]  # fmt: skip
