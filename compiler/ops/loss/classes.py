"""Class indices as targets: their types, their places along the axis of classes, and their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

_WIDE = {DType.F16: DType.F32, DType.BF16: DType.F32}


def check_classes(op: str, x: TensorType, target: TensorType, axis: int) -> TensorType:
    """The type of one value per target, f32 for 16-bit floats; raises Mismatch.

    ``target`` holds integers 0 <= t < classes and has the shape of x without ``axis`` (from 0).
    """
    if not 0 <= axis < x.rank:
        raise Mismatch(f"`{op}` needs an axis of classes, got {x}", "logits of [..., classes]", "E0306")
    if not x.dtype.is_float:
        swapped = f"swap the arguments: {op}(logits, target)"
        computed = "the logits are what the model computes, not class numbers"
        raise Mismatch(f"`{op}` needs float logits, got {x}", swapped if target.dtype.is_float else computed, "E0204")
    if not target.dtype.is_int:
        raise Mismatch(f"`{op}` needs integer classes, the target is {target}", "declare it `i32[B]`", "E0204")
    rest = x.shape[:axis] + x.shape[axis + 1 :]
    if target.shape != rest:
        shown = ", ".join(map(str, rest))
        others = [i for i in range(x.rank) if x.shape[:i] + x.shape[i + 1 :] == target.shape]
        help = f"`axis={others[0]}` if that is the axis of the classes" if others else f"a target of [{shown}]"
        raise Mismatch(f"with {x} and classes on axis {axis}, the target is {target}, not [{shown}]", help, "E0302")
    if x.shape[axis] == 0:
        raise Mismatch(f"`{op}` over no classes: {x}", "at least one class", "E0308")
    return TensorType(_WIDE.get(x.dtype, x.dtype), rest)


def target_places(target: Array, classes: int, axis: int, ignore: int | None) -> tuple[Array, Array, Array]:
    """The target as an index along ``axis`` (0 if invalid), where it counts, and where it is not a class."""
    target = target.astype(np.int64)  # as the kernels count: a u64 from 2^63 on is negative
    counts = np.ones(target.shape, bool) if ignore is None else target != ignore
    wrong = (target < 0) | (target >= classes)
    return np.expand_dims(np.where(counts & ~wrong, target, 0).astype(np.int64), axis), counts, wrong


def class_range(node: Node, index: int) -> tuple[int, Size] | None:
    """The range of the target (input 1), a class index; with ``ignore_index`` it may have any value."""
    if index != 1 or node.attrs.get("ignore_index") is not None:
        return None
    return 0, node.inputs[0].type.shape[int_attr(node.attrs, "axis")]


def class_rows(axes: Sequence[int | None], axis: int, like_x: Sequence[bool]) -> tuple[int | None, ...] | None:
    """``like_x`` says for each output whether it has the class axis."""
    main = axes[0]
    if main is None:
        return (None,) * len(like_x) if axes[1] is None else None
    without = main - (main > axis)
    if main == axis or axes[1] != without:
        return None
    return tuple(main if whole else without for whole in like_x)


def moved_bytes(node: Node) -> int:
    return sum(t.bytes for t in (*node.input_types, *node.types))
