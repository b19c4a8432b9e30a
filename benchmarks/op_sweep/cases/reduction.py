"""Reductions, scans and what normalises along lines, at each place of the axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from op_sweep.case import Case, Tensor

if TYPE_CHECKING:
    from op_sweep.case import Sizes

#: Name -> the kind of x, the argument of the axis, whether the axis goes, whether it has a gradient, PyTorch's call.
#: Products are of 1 and -1: any other long line overflows or vanishes.
LINES: Final[dict[str, tuple[str, str, bool, bool, Callable[..., Any]]]] = {
    "sum": ("normal", "over", True, True, lambda t, x, n: x.sum(n)),
    "mean": ("normal", "over", True, True, lambda t, x, n: x.mean(n)),
    "max": ("normal", "over", True, True, lambda t, x, n: x.amax(n)),
    "min": ("normal", "over", True, True, lambda t, x, n: x.amin(n)),
    "softmax": ("normal", "axis", False, True, lambda t, x, n: x.softmax(n)),
    "log_softmax": ("normal", "axis", False, True, lambda t, x, n: x.log_softmax(n)),
    "logsumexp": ("normal", "over", True, True, lambda t, x, n: x.logsumexp(n)),
    "norm": ("normal", "over", True, True, lambda t, x, n: t.linalg.vector_norm(x, 2, n)),
    "prod": ("sign", "over", True, True, lambda t, x, n: x.prod(n)),
    "cumsum": ("normal", "axis", False, True, lambda t, x, n: x.cumsum(n)),
    "logcumsumexp": ("normal", "axis", False, True, lambda t, x, n: x.logcumsumexp(n)),
    "cumprod": ("sign", "axis", False, True, lambda t, x, n: x.cumprod(n)),
    "var": ("normal", "over", True, True, lambda t, x, n: x.var(n, correction=0)),
    "std": ("normal", "over", True, True, lambda t, x, n: x.std(n, correction=0)),
}
_TRUTH: Final[dict[str, Callable[..., Any]]] = {"any": lambda t, x, n: x.any(n), "all": lambda t, x, n: x.all(n)}
#: As ours: products cancel where vectors are near each other.
_DIFFERENCES: Final = "donot_use_mm_for_euclid_dist"


def cases(sizes: Sizes) -> Iterator[Case]:
    for name, (kind, word, goes, smooth, theirs) in LINES.items():
        for shape, (size, axis) in sizes.lines().items():
            rank = len(size) - goes
            call = lambda t, x, n=axis, f=theirs: f(t, x, n)  # noqa: E731
            ours, wrt = f"{name}(x, {word}={axis})", ("x",) if smooth else ()
            yield Case(name, shape, {"x": Tensor(size, kind)}, ours, call, wrt, (str(rank),))
    for name, theirs in _TRUTH.items():
        for shape, (size, axis) in sizes.lines().items():
            if shape in ("huge", "tiny", "first axis"):
                call = lambda t, x, n=axis, f=theirs: f(t, x, n)  # noqa: E731
                x = {"x": Tensor(size, "below", "b1")}
                yield Case(name, shape, x, f"{name}(x, over={axis})", call, out=("b1 1",))
    yield from _whole(sizes)
    yield from _pairs(sizes)


def _whole(sizes: Sizes) -> Iterator[Case]:
    x = {"x": Tensor(sizes.flat()["huge"])}
    yield Case("sum", "to one", x, "sum(x)", lambda t, x: x.sum(), ("x",), ("0",))
    yield Case("mean", "to one", x, "mean(x)", lambda t, x: x.mean(), ("x",), ("0",))
    yield Case("max", "to one", x, "max(x)", lambda t, x: x.max(), ("x",), ("0",))
    yield Case("norm", "to one", x, "norm(x)", lambda t, x: t.linalg.vector_norm(x), ("x",), ("0",))
    image = {"x": Tensor(sizes.images()["huge"])}
    yield Case("sum", "channels", image, "sum(x, over=[0, 2, 3])", lambda t, x: x.sum((0, 2, 3)), ("x",), ("1",))
    b, c, h, w = sizes.images()["huge"]
    for name, theirs in (("sum", lambda t, x: x.sum((1, 3))), ("max", lambda t, x: x.amax((1, 3))),
                         ("softmax", lambda t, x: x.transpose(1, 2).flatten(2).softmax(2))):  # fmt: skip
        ours = f"{name}(x, over=[1, 3])"
        if name == "softmax":
            ours = f"softmax(reshape(transpose(x, [0, 2, 1, 3]), [{b}, {h}, {c * w}]))"
        yield Case(name, "axes apart", image, ours, theirs, ("x",), ("3" if name == "softmax" else "2",))
    yield Case("norm", "p=1", x, "norm(x, 1.0, over=1)", lambda t, x: t.linalg.vector_norm(x, 1, 1), ("x",), ("1",))
    yield Case("norm", "p=3", x, "norm(x, 3.0, over=1)", lambda t, x: t.linalg.vector_norm(x, 3, 1), ("x",), ("1",))


def _pairs(sizes: Sizes) -> Iterator[Case]:
    for shape, (size, axis) in sizes.lines().items():
        if shape not in ("huge", "tiny", "odd", "first axis"):
            continue
        two = {"x": Tensor(size), "y": Tensor(size)}
        call = lambda t, x, y, n=axis: t.nn.functional.cosine_similarity(x, y, n)  # noqa: E731
        yield Case("cosine_similarity", shape, two, f"cosine_similarity(x, y, axis={axis})", call, ("x", "y"), ("1",))
        call = lambda t, x, y, n=axis: t.linalg.vector_norm(x - y + 1e-6, dim=n)  # noqa: E731
        yield Case("pairwise_distance", shape, two, f"pairwise_distance(x, y, axis={axis})", call, ("x", "y"), ("1",))
    q = sizes.quadratic
    for shape, (p, r, m) in {"huge": (q, q, 64), "tiny": (3, 4, 5), "odd": (q // 2 | 1, 33, 7)}.items():
        two = {"x": Tensor((p, m)), "y": Tensor((r, m))}
        yield Case("cdist", shape, two, "cdist(x, y)",
                   lambda t, x, y: t.cdist(x, y, compute_mode=_DIFFERENCES), ("x", "y"),
                   dtypes=("f32", "f64"))  # fmt: skip
