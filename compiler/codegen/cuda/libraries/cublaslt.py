"""Matmuls through cuBLASLt, with a bias and a residual that are added to them.

With channels last, a convolution whose windows are one place each is a product of matrices: of the places' channels and
the weights. In f32 and TF32, for which cuDNN has no compiled plans that add a bias, it is one here with a bias.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Final, Literal

from dslc.compiler.codegen.cuda.contraction.dots import is_dots
from dslc.compiler.codegen.cuda.contraction.few_rows import few_rows
from dslc.compiler.codegen.cuda.contraction.lower import tiled_problem
from dslc.compiler.codegen.cuda.contraction.tiles import is_latency_bound, tiling_of
from dslc.compiler.codegen.cuda.libraries.cudnn import why_own
from dslc.compiler.codegen.cuda.libraries.library import (
    MAX_ELEMENTS,
    NOT_FOR_IT,
    Library,
    NoCall,
    Shape,
    compute_of,
    is_small,
    shared_room,
)
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, int_attr, int_tuple
from dslc.compiler.ops.compound.contraction import product_and_epilogue, summands
from dslc.compiler.ops.spatial.few_channels import is_of_few_channels
from dslc.runtime.artifact.instructions import Gemm

_READ_AT_ONCE: Final = 16  # bytes that a product on tensor cores reads at once
#: The limits of long sums in TF32. On an H200, own kernels take 4 to 15 us for 55 such products, the library 8 to
#: 2,136.
_SMALL_RESULT: Final = 1 << 14  # elements
_FEW_PRODUCTS: Final = 1 << 27  # multiply-adds


@described("VendorGemm", "a b out transpose_a transpose_b compute")
@dataclass(frozen=True)
class VendorGemm:
    """``out = op(a) @ op(b)`` of dense matrices ``[m, k]``, or of stacks ``[z, m, k]``; a stack of 1 is broadcast to
    the other. ``transpose_a``, ``transpose_b``: the last two axes are swapped first."""

    library: ClassVar = "cublaslt"
    a: Shape
    b: Shape
    out: Shape
    transpose_a: bool
    transpose_b: bool
    compute: Literal["f32", "f64", "tf32"]

    @property
    def shapes(self) -> tuple[Shape, Shape, Shape]:
        """The shapes of the operands and, last, of the result, as passed to the library."""
        return self.a, self.b, self.out

    @property
    def product(self) -> tuple[int, int, int, int]:
        """How many matrices, their rows and columns, and how many products each element sums."""
        rows, columns = self.out[-2:]
        return prod(self.out[:-2]), rows, columns, self.a[-2 if self.transpose_a else -1]

    @property
    def room(self) -> int:
        """As for ``Call``."""
        return shared_room(self.product)

    def instruction(self, operands: Sequence[int], workspace: int, where: int, algorithm: str = "") -> Gemm:
        """The call on buffers of a plan. Without an algorithm, the library chooses one on the GPU that runs it."""
        a, b, out = operands
        return Gemm(
            self.library, a, b, None, None, out, workspace, self.transpose_a, self.transpose_b, self.compute,
            alpha=1.0, beta=0.0, epilogue="none", algorithm=algorithm.encode("ascii"), stream=0, where=where,
        )  # fmt: skip


@described("VendorSum", "gemm added")
@dataclass(frozen=True)
class VendorSum:
    """A product to which the library adds further operands before it rounds. ``added``: the kind of each of them:
    ``bias``, with an element for each column, or ``c``, of the result's shape."""

    library: ClassVar = "cublaslt"
    gemm: VendorGemm
    added: tuple[str, ...]

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of the operands and, last, of the result, as passed to the library."""
        a, b, out = self.gemm.shapes
        return a, b, *(out if kind == "c" else out[-1:] for kind in self.added), out

    @property
    def product(self) -> tuple[int, int, int, int]:
        """As of the product."""
        return self.gemm.product

    @property
    def room(self) -> int:
        """As of the product."""
        return self.gemm.room

    def instruction(self, operands: Sequence[int], workspace: int, where: int, algorithm: str = "") -> Gemm:
        """The call on buffers of a plan. Without an algorithm, the library chooses one on the GPU that runs it."""
        a, b, *others, out = operands
        more = dict(zip(self.added, others, strict=True))
        plain = self.gemm.instruction((a, b, out), workspace, where, algorithm)
        return replace(plain, c=more.get("c"), bias=more.get("bias"), beta=1.0 if "c" in more else 0.0)


def _call(node: Node) -> VendorGemm | VendorSum | NoCall:
    if node.op.name != "contraction":
        return _product(node)
    first, added = product_and_epilogue(node)[0], summands(node)
    product = _places(first) if first.op.name == "conv_last" else _product(first)
    if isinstance(product, NoCall):
        return product
    if added is None or node.types[0].dtype is DType.F64 or (first.op.name == "conv_last" and "c" in added):
        return NOT_FOR_IT  # a residual of a convolution was only seen in a step that became slower
    return VendorSum(product, added)


def _product(node: Node) -> VendorGemm | NoCall:
    if node.op.name != "matmul":
        return NOT_FOR_IT
    [a, b], [c] = node.input_types, node.types
    ta, tb = bool_attr(node.attrs, "transpose_a"), bool_attr(node.attrs, "transpose_b")
    inner = a.ints[-2] if ta else a.ints[-1]
    if is_small(prod(c.ints) * inner):
        return NoCall("few multiply-adds")
    if max(prod(t.ints) for t in (a, b, c)) >= MAX_ELEMENTS:
        return NoCall("2^31 elements")
    compute: Literal["f32", "f64", "tf32"] = "f64" if a.dtype is DType.F64 else compute_of(node)
    matrix_a, matrix_b, matrix_c = a.ints[-2:], b.ints[-2:], c.ints[-2:]
    each_a, each_b, each = prod(a.ints[:-2]), prod(b.ints[:-2]), prod(c.ints[:-2])
    if each == 1:
        return VendorGemm(matrix_a, matrix_b, matrix_c, ta, tb, compute)
    if each_b == 1 and not ta:  # all matrices of the stack are multiplied by the same one
        rows = each * matrix_c[0]
        return VendorGemm((rows, inner), matrix_b, (rows, matrix_c[1]), ta, tb, compute)
    if {each_a, each_b} <= {1, each}:
        return VendorGemm((each_a, *matrix_a), (each_b, *matrix_b), (each, *matrix_c), ta, tb, compute)
    return NoCall("stacks that broadcast both ways")


def _places(node: Node) -> VendorGemm | NoCall:
    """Of a convolution: the product of each place's channels and the weights."""
    (image, weight), [out] = node.input_types, node.types
    window = (*weight.ints[1:-1], *int_tuple(node.attrs, "stride"))
    if {*window} != {1} or any(int_tuple(node.attrs, "pad")) or int_attr(node.attrs, "groups") != 1:
        return NOT_FOR_IT
    if image.dtype is not DType.F32:
        return NOT_FOR_IT  # cuDNN adds it
    into, outputs = weight.ints[-1], weight.ints[0]
    rows = prod(out.ints) // outputs
    if is_small(rows * outputs * into):
        return NoCall("few multiply-adds")
    if max(prod(t.ints) for t in (image, weight, out)) >= MAX_ELEMENTS:
        return NoCall("2^31 elements")
    return VendorGemm((rows, into), (outputs, into), (rows, outputs), False, True, compute_of(node))


def _own(node: Node, architecture: str) -> str | None:
    first, last = product_and_epilogue(node) if node.op.name == "contraction" else (node, None)
    if first.op.name == "conv_last":
        return why_own(first, architecture)
    if few_rows(first, last):
        return "few rows: an own kernel reads the weights as fast as memory gives them"
    if is_dots(first):
        return "a stack of products of a vector: an own kernel reads the matrices as fast as memory gives them"
    if is_of_few_channels(first):
        return "few columns: an own kernel reads the rows as fast as memory gives them"
    if _is_long_sum(first):
        return "a long sum for a small result: own kernels divide the sum"
    return None


def _is_long_sum(first: Node) -> bool:
    """Whether a product is a long sum for a small result, for which the library may use too few blocks.

    In TF32, cuBLASLt 13.1 rarely divides such a sum among blocks. On an H200, 32 x 16 results of 65,536 products each
    take 2,136 us, by own kernels 6.5; 128 x 128 results of 6,144 products take 206 us (10), and of 16,384 products 11
    us (15). In 16 bits it is slow if it cannot read rows 16 bytes at a time: the gradient of a ``linear`` of 21
    features and 12,288 rows takes 2.1 ms, by own kernels 10 us.
    """
    tf32 = compute_of(first) == "tf32"
    if first.op.name != "matmul" or not (tf32 or first.types[0].dtype.is_half):
        return False
    sizes = (t.ints[-1] * t.dtype.itemsize for t in (*first.input_types, *first.types))
    odd = any(size % _READ_AT_ONCE for size in sizes)
    if not tf32 and not odd:
        return False
    found = tiled_problem(first)
    if found is None or tiling_of(*found).split == 1:
        return False
    problem = found[0]
    small = problem.c.elements <= _SMALL_RESULT and problem.c.elements * problem.count("k") <= _FEW_PRODUCTS
    return (odd and is_latency_bound(*found)) or (tf32 and small)


#: An algorithm is its configuration, ``id=66 tile=20 stages=35 ...``.
LIBRARY: Final = Library(
    VendorGemm.library,
    _call,
    re.compile(r"[a-z]{1,16}=-?[0-9]{1,10}(?: [a-z]{1,16}=-?[0-9]{1,10}){0,15}", re.ASCII),
    _own,
)
