"""Attention in 16 bits and its gradient through cuDNN, which reads and writes views of tensors.

cuDNN compiles a kernel of attention whenever a session loads it, in about a second. So it computes what it does clearly
faster than own kernels, by the model of ``attention/pace.py``, and the rest if a measured choice says so. Its gradients
have the same bits each time: the slopes of all scores are in the workspace, not added up by atomics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Final, TypeAlias

from dslc.compiler.codegen.cuda.attention.pace import PACES, Attended
from dslc.compiler.codegen.cuda.libraries.cudnn_plans import engine_and_knobs
from dslc.compiler.codegen.cuda.libraries.library import MAX_ELEMENTS, NOT_FOR_IT, NoCall, Shape, is_small
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, float_attr
from dslc.compiler.ops.compound.strided_attention import (
    StridedAttention,
    View,
    bias_of,
    mask_of,
    reads_of,
    unstrided,
    whole,
    writes_of,
)
from dslc.compiler.ops.products.attention import sdpa, sdpa_grad
from dslc.compiler.ops.products.attention_terms import window_of
from dslc.runtime.artifact.attention_check import SUMS
from dslc.runtime.artifact.instructions import GraphOp

#: Elements of 16 bits that cuDNN loads at once: features, and the distances between rows, are multiples of it.
_LOADED: Final = 8
_MOST_FEATURES: Final = 256  # on sm_90; of gradients on sm_80 and sm_100 128
_MEASURED: Final = "sm_90"  # the architecture on which both ways were timed
#: cuDNN's part of the own kernels' time, and the seconds of a call that it saves, from which it is the rule: a load
#: compiles a kernel in about a second, which 200,000 such calls save. The model is up to a tenth off.
_PART: Final = 0.9
_SAVED: Final = 5e-6
_TILE: Final = (64, 128)  # queries and keys, to multiples of which its gradient's workspace is rounded
_SLACK: Final = 64 << 10  # bytes of a workspace, for other versions: 9.19 takes 256 next to what is counted
#: Bytes of a gradient's workspace, which grows with the product of queries and keys. Above, own kernels are the rule
#: and the only way: a seventieth of an H200's memory.
_MOST_ROOM: Final = 2 << 30

#: Of an operand: the sizes of batch, heads, rows and features, the distances between neighbours along them, and the
#: first element; in elements.
Part: TypeAlias = tuple[Shape, Shape, int]


@described("VendorAttention", "kind reads writes shapes scale causal window")
@dataclass(frozen=True)
class VendorAttention:
    """``kind``: sdpa of (q, k, v), which gives y and the logarithm of each row's sum, or sdpa_grad of (q, k, v, y,
    that, dy), which gives dq, dk and dv. ``reads``: of each of these the part of its tensor; ``writes``: of each result
    the number of the output and the part of it; ``shapes``: of all inputs and outputs; ``window``: as of the op, 0
    without one."""

    library: ClassVar = "cudnn"
    kind: str
    reads: tuple[Part, ...]
    writes: tuple[tuple[int, Part], ...]
    shapes: tuple[Shape, ...]
    scale: float
    causal: bool
    window: int

    @property
    def room(self) -> int:
        """Bytes of the workspace: for a gradient, what cuDNN 9.19 says that its plans for a Hopper GPU need: the slope
        of each score in 16 bits, a sum in f32 for each query, and, if heads share keys, what each of them adds to the
        gradients of keys and values."""
        (batch, heads, queries, features), (_, shared, keys, _), (*_, values) = (each[0] for each in self.reads[:3])
        need = 0
        if self.kind == "sdpa_grad":
            rows, columns = (-(-count // tile) * tile for count, tile in zip((queries, keys), _TILE))
            need = batch * heads * (2 * rows * columns + 4 * queries)
            need += 2 * batch * heads * keys * (features + values) if shared != heads else 0
        return -(-need // 256) * 256 + _SLACK

    def instruction(self, operands: Sequence[int], workspace: int, where: int, algorithm: str = "") -> GraphOp:
        """As for ``LibraryCall``; without an algorithm, cuDNN chooses one on the GPU that runs it."""
        engine, knobs = engine_and_knobs(algorithm)
        attrs = {
            "causal": self.causal,
            "reads": [_listed(part) for part in self.reads],
            "scale": self.scale,
            "writes": [[number, *_listed(part)] for number, part in self.writes],
            **({"window": self.window} if self.window else {}),
        }
        count = len(self.reads)
        return GraphOp(
            self.library, self.kind, attrs, tuple(operands[:count]), tuple(operands[count:]), workspace,
            engine=engine, knobs=knobs, stream=0, where=where,
        )  # fmt: skip


def attention_call(node: Node) -> VendorAttention | NoCall:
    """As for ``Library``."""
    if isinstance(node.op, StridedAttention):
        own, reads, writes = unstrided(node), reads_of(node.attrs), writes_of(node.attrs)
    elif node.op in (sdpa, sdpa_grad):
        own, reads = node, [whole(t.ints) for t in node.input_types]
        writes = [(number, whole(t.ints)) for number, t in enumerate(node.types)]
    else:
        return NOT_FOR_IT
    why = _why_not(own)
    if why is not None:
        return NoCall(why)
    kind = "sdpa" if own.op is sdpa else "sdpa_grad"
    views = [*reads, *(view for _, view in writes)]
    parts = [part for n, view in enumerate(views) if (part := _four(view, is_row=n == SUMS)) is not None]
    if len(parts) < len(views):
        return NoCall("rows that it cannot load")
    found, results = tuple(parts[: len(reads)]), tuple(zip((number for number, _ in writes), parts[len(reads) :]))
    shapes = tuple(t.ints for t in (*node.input_types, *node.types))
    scale, causal, window = float_attr(own.attrs, "scale"), bool_attr(own.attrs, "causal"), window_of(own.attrs)
    call = VendorAttention(kind, found, results, shapes, scale, causal, window)
    return NoCall(f"scores that take more than {_MOST_ROOM >> 30} GiB") if call.room > _MOST_ROOM else call


def why_own_attention(call: VendorAttention, architecture: str) -> str | None:
    """Why own kernels compute an attention that cuDNN can compute, unless a measured choice names it; None if it is
    faster by the model."""
    if architecture != _MEASURED:
        return f"cuDNN's attention was measured on {_MEASURED} alone"
    (batch, heads, queries, features), (_, _, keys, _), (*_, values) = (sizes for sizes, _, _ in call.reads[:3])
    if features != values:
        return f"{features} and {values} features, which were not measured"
    one = Attended(batch * heads, queries, keys, features, call.causal, call.window)
    ours, theirs = (PACES[by, call.kind == "sdpa_grad"].seconds(one) for by in ("own", "cudnn"))
    gains = theirs < _PART * ours and ours - theirs > _SAVED
    return None if gains else "own kernels are as fast at these sizes"


def _why_not(node: Node) -> str | None:
    """Why cuDNN does not compute an attention, or its gradient, on plain tensors."""
    q, k, v = node.input_types[:3]
    if mask_of(node) is not None:
        return "a mask"
    if bias_of(node) is not None:
        return "a bias"
    if q.dtype not in (DType.BF16, DType.F16):
        return str(q.dtype)
    if any(n % _LOADED or n > _MOST_FEATURES for n in (q.ints[-1], v.ints[-1])):
        return f"{q.ints[-1]} and {v.ints[-1]} features"
    if float_attr(node.attrs, "scale") <= 0:
        return "a scale of 0 or less"
    if max(prod(t.ints) for t in (*node.input_types, *node.types)) >= MAX_ELEMENTS:
        return "2^31 elements"
    if q.ints[-2] == k.ints[-2] == 1:
        return "one query and one key"  # cuDNN refuses the gradient
    return "few multiply-adds" if is_small(prod(q.ints) * k.ints[-2]) else None


def _four(view: View, is_row: bool) -> Part | None:
    """The view with four axes, as cuDNN takes it; None if there is no such one, or if it cannot load its rows.
    ``is_row``: it has one number for each query, in f32, and no axis of features."""
    shape, strides = (view.shape, view.strides) if not is_row else ((*view.shape, 1), (*view.strides, 1))
    axes = list(zip(shape, strides))
    while len(axes) > 4:
        (outer, far), (inner, near) = axes[:2]
        if far != near * inner:
            return None
        axes[:2] = [(outer * inner, near)]
    while len(axes) < 4:
        axes.insert(0, (1, axes[0][0] * axes[0][1]))
    sizes, steps = (tuple(each) for each in zip(*axes))
    if is_row:
        return (sizes, steps, view.start) if view == whole(view.shape) else None
    loaded = steps[-1] == 1 and not any(n % _LOADED for n in (*steps[:-1], view.start))
    return (sizes, steps, view.start) if loaded and 0 not in steps else None


def _listed(part: Part) -> list[object]:
    sizes, steps, start = part
    return [list(sizes), list(steps), start]
