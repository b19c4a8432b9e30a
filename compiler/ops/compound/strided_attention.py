"""``strided_sdpa`` and ``strided_sdpa_grad``: attention that reads and writes parts of tensors in place. A pass makes
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, prod
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from dslc.compiler.ir.graph import Attr, Attrs, Input, Kind, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import flag_attr, float_attr
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.products.attention import sdpa, sdpa_grad

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

MOST_FEATURES: Final = 256  # of attention in tiles
#: The same in TF32. With 256 features, whose tiles fill shared memory, tiles took three times as long as separate
#: kernels; up to 128 at most four fifths (``benchmarks/results/ops.md``, "Attention in TF32").
MOST_IN_TF32: Final = 128
_CHUNK: Final = 8  # elements that its kernels load at once, of rows that are so aligned


class View(NamedTuple):
    """Elements of a row-major tensor: those at ``start`` plus index times stride, over axes of ``shape``."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int = 0

    @property
    def end(self) -> int:
        """One more than the last element's place; ``start`` if there are no elements."""
        if not prod(self.shape):
            return self.start
        return self.start + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides)) + 1

    def of(self, x: Array) -> Array:
        """The view of a contiguous array, which it shares."""
        flat = x.reshape(-1)
        strides = tuple(stride * flat.itemsize for stride in self.strides)
        return np.lib.stride_tricks.as_strided(flat[self.start :], self.shape, strides)


def whole(shape: Sequence[int]) -> View:
    """A whole tensor of this shape."""
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return View(tuple(shape), tuple(strides))


class StridedAttention(Op):
    """An op of attention, ``base``, on views of tensors.

    Attributes: those of ``base``; ``reads``: of each input the view that is the operand, as (shape, strides, start);
    ``writes``: of each result the number of an output and the view of it; ``results``: the shapes of the outputs, each
    of whose elements is in one view. Views of one output have one dtype.
    """

    base: ClassVar[Op]

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        reads, writes, shapes = reads_of(attrs), writes_of(attrs), results_of(attrs)
        for type, view in zip(types, reads, strict=True):
            _check(type.ints, view)
        found = self.base.infer([TensorType(t.dtype, v.shape) for t, v in zip(types, reads)], _own(attrs))
        outputs: list[TensorType] = []
        for number, shape in enumerate(shapes):
            parts = [(t, view) for t, (place, view) in zip(found, writes, strict=True) if place == number]
            if {t.dtype for t, _ in parts} != {parts[0][0].dtype} or sum(prod(v.shape) for _, v in parts) != prod(
                shape
            ):
                raise Mismatch(f"an output {shape} of {len(parts)} views", "views of one dtype that cover it")
            for t, view in parts:
                assert t.ints == view.shape, f"a result {t} is written as {view.shape}"
                _check(shape, view)
            outputs.append(TensorType(parts[0][0].dtype, shape))
        return tuple(outputs)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("layouts are chosen after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        operands = [view.of(np.ascontiguousarray(x)) for x, view in zip(xs, reads_of(attrs))]
        found = self.base.meaning(operands, _own(attrs))
        writes = writes_of(attrs)
        dtypes = {place: x.dtype for x, (place, _) in zip(found, writes)}
        outputs = [np.empty(shape, dtypes[number]) for number, shape in enumerate(results_of(attrs))]
        for x, (place, view) in zip(found, writes):
            view.of(outputs[place])[...] = x
        return outputs

    def cost(self, node: Node) -> Cost:
        moved = sum(v.type.bytes for v in dict.fromkeys(node.inputs)) + sum(t.bytes for t in node.types)
        own = unstrided(node)
        return Cost(own.op.cost(own).flops, moved)


class StridedSdpa(StridedAttention):
    """strided_sdpa(q, k, v): ``sdpa`` of views, with views as results; attributes as for ``StridedAttention``."""

    name, base = "strided_sdpa", sdpa
    kernel_kind = "attention"


class StridedSdpaGrad(StridedAttention):
    """strided_sdpa_grad(q, k, v, y, lse, dy): ``sdpa_grad`` of views; attributes as for ``StridedAttention``."""

    name, base = "strided_sdpa_grad", sdpa_grad
    kernel_kind = "attention gradient"


strided_sdpa = register(StridedSdpa())
strided_sdpa_grad = register(StridedSdpaGrad())


def strided(
    node: Node, inputs: Sequence[Value], reads: Sequence[View], writes: Sequence[tuple[int, View]],
    results: Sequence[Sequence[int]],
) -> Node:  # fmt: skip
    """The node that computes an ``sdpa`` or its gradient on views of ``inputs``."""
    attrs: dict[str, Attr] = {**node.attrs, "reads": tuple(map(tuple, reads))}
    attrs["writes"] = tuple((number, *view) for number, view in writes)
    attrs["results"] = tuple(map(tuple, results))
    op = strided_sdpa if node.op is sdpa else strided_sdpa_grad
    return Builder().at(node, node.phase).node(op, *inputs, **attrs)


def unstrided(node: Node) -> Node:
    """The node that computes the same of operands of its own."""
    assert isinstance(node.op, StridedAttention)
    types = [TensorType(t.dtype, view.shape) for t, view in zip(node.input_types, reads_of(node.attrs))]
    operands = [Input("operand", Kind.DATA, type).value for type in types]
    return Builder().at(node, node.phase).node(node.op.base, *operands, **_own(node.attrs))


def reads_of(attrs: Mapping[str, Any]) -> list[View]:
    """The views of the inputs."""
    return [_view(each) for each in attrs["reads"]]


def writes_of(attrs: Mapping[str, Any]) -> list[tuple[int, View]]:
    """Of each result of the op on plain tensors: the number of the output, and the view of it."""
    return [(int(number), _view(view)) for number, *view in attrs["writes"]]


def results_of(attrs: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """The shapes of the outputs."""
    return [tuple(map(int, shape)) for shape in attrs["results"]]


def _view(found: Sequence[Any]) -> View:
    shape, strides, start = found
    return View(tuple(map(int, shape)), tuple(map(int, strides)), int(start))


def _own(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attrs.items() if name not in ("reads", "writes", "results")}


def _check(shape: Sequence[int], view: View) -> None:
    if view.start < 0 or min((*view.strides, 0)) < 0 or view.end > prod(shape):
        raise Mismatch(f"a view up to element {view.end} of {list(shape)}", "places of the tensor")


def fits_tiles(node: Node) -> bool:
    """Whether kernels in tiles compute an ``sdpa`` or its gradient on plain tensors."""
    return why_parts(node) is None


def why_parts(node: Node) -> str | None:
    """Why an ``sdpa`` or its gradient is computed in parts, with all scores in memory; None if it is in tiles."""
    q, k, v = node.input_types[:3]
    features = q.ints[-1]
    if not q.dtype.is_half and not flag_attr(node.attrs, "tf32"):
        return f"tiles are for 16 bits and TF32, and q is {q.dtype}"
    if features != v.ints[-1]:
        return f"q has {features} features and v has {v.ints[-1]}"
    most = MOST_FEATURES if q.dtype.is_half else MOST_IN_TF32
    if features > most:
        return f"{features} features are more than {most}"
    if float_attr(node.attrs, "scale") <= 0:
        return "its scale is not above 0"
    if min(q.bytes, k.bytes) == 0:
        return "it has no elements"
    for name, x in zip(("mask", "bias"), (mask_of(node), bias_of(node))):
        if x is not None and places([whole(q.ints), whole(k.ints)], [pairs(node, x)]) is None:
            return f"its {name} is broadcast over more than two runs of axes"
    if places([whole(q.ints), whole(k.ints)], [pairs(node, x) for x in terms_of(node)]) is None:
        return "its mask and its bias together are broadcast over more than two runs of axes"
    return None


def terms_of(node: Node) -> tuple[Value, ...]:
    """The mask and the bias of an ``sdpa`` or its gradient on plain tensors, as far as it has them."""
    return node.inputs[3 if node.op is sdpa else 6 :]


def mask_of(node: Node) -> Value | None:
    return next((x for x in terms_of(node) if x.type.dtype is DType.B1), None)


def bias_of(node: Node) -> Value | None:
    return next((x for x in terms_of(node) if x.type.dtype is not DType.B1), None)


def pairs(node: Node, term: Value) -> View:
    """The mask or bias of an ``sdpa`` or its gradient on plain tensors as a view ``[..., Tq, Tk]``; strides are 0 where
    it is broadcast."""
    q, k = node.input_types[:2]
    wide = (*q.ints[:-1], k.ints[-2])
    own = whole(term.type.ints)
    strides = [0 if size == 1 else stride for size, stride in zip(own.shape, own.strides)]
    return View(wide, (*(0,) * (len(wide) - len(strides)), *strides))


class Places(NamedTuple):
    """How kernels in tiles find rows of views: all leading axes are merged to two, the inner one with ``inner``
    members. ``rows``: of each view (start, stride of the outer axis, of the inner one, of rows); ``terms``: the same of
    each mask or bias, and the stride of keys. Where ``share`` heads of q read one of k, the inner axis counts heads
    of q, and a view of k's heads has the stride from one of these to the next."""

    inner: int
    share: int
    rows: tuple[tuple[int, ...], ...]
    terms: tuple[tuple[int, ...], ...]


def places(views: Sequence[View], terms: Sequence[View] = ()) -> Places | None:
    """None if two axes do not describe the leading ones of all views, or if rows are not contiguous, or less aligned
    than those of a whole tensor."""
    every = [*views, *terms]
    heads = [view.shape[-3] if len(view.shape) > 2 else 1 for view in every]
    kept = min(heads)
    share = max(heads) // max(1, kept)
    lead = min((view.shape[:-2] for view in views), key=prod)
    steps = [_grouped(view, kept).strides for view in every]
    axes = [axis for axis in range(len(lead)) if lead[axis] > 1 or (share > 1 and axis == len(lead) - 1)]
    groups: list[list[int]] = []
    for axis in axes:
        last = groups[-1][-1] if groups else None
        if last is not None and all(each[last] == each[axis] * lead[axis] for each in steps):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    if len(groups) > 2:
        return None
    outer, inner = ([[], *groups] if len(groups) == 1 else groups) or ([], [])
    found = []
    for view, each, count in zip(every, steps, heads):
        within = each[inner[-1]] // (share if count > kept else 1) if inner else 0
        outermost = each[outer[-1]] if outer else 0
        found.append((view.start, outermost, within, view.strides[-2] if view.shape[-2] > 1 else 0))
    rows = found[: len(views)]
    aligned = gcd(_CHUNK, views[0].shape[-1])
    if any(view.strides[-1] != 1 for view in views) or any(n % aligned for row in rows for n in row):
        return None
    more = tuple((*row, view.strides[-1]) for row, view in zip(found[len(views) :], terms))
    members = prod(lead[axis] for axis in inner) * share
    return Places(members, share, tuple(rows), more)


def _grouped(view: View, heads: int) -> View:
    """The view with every so many heads as one, where it has more than ``heads``: strides of the first ones."""
    if len(view.shape) < 3 or view.shape[-3] == heads:
        return view
    shape, strides, share = list(view.shape), list(view.strides), view.shape[-3] // max(1, heads)
    shape[-3], strides[-3] = heads, strides[-3] * share
    return View(tuple(shape), tuple(strides), view.start)
