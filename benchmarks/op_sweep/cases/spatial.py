"""Convolutions, pools and resampling, with channels first and last, in one to three dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from op_sweep.case import Case, Tensor, ids

if TYPE_CHECKING:
    from op_sweep.case import Sizes

_IMAGE_DIMS = 4


def cases(sizes: Sizes) -> Iterator[Case]:
    for shape, size in sizes.images().items():
        yield from _resampling(shape, size)
        yield from _shuffles(shape, size)
        for last in (False, True):
            yield from _pools(shape, size, last)
    yield from _convolutions(sizes)
    yield from _at_places(sizes)


def _case(
    name: str, shape: str, size: tuple[int, ...], last: bool, ours: str, theirs: Callable[..., Any],
    more: dict[str, Tensor] | None = None, rank: int = 0,
) -> Case:  # fmt: skip
    """A case of images; with ``last`` the channels of input and result are the last axis in memory. ``X`` stands for
    the images in ``ours``."""
    b, c, *space = size
    rank = rank or len(size)
    x = Tensor((b, *space, c) if last else size)
    spatial = range(len(space))
    to_first = [0, len(size) - 1, *(i + 1 for i in spatial)]
    to_last = [0, *(i + 2 for i in spatial), 1]
    text = ours.replace("X", f"transpose(x, {to_first})" if last else "x")
    if last and rank == len(size):
        text = f"transpose({text}, {to_last})"

    def call(t: Any, x: Any, *others: Any) -> Any:
        y = theirs(t, x.permute(to_first) if last else x, *others)
        return y.permute(to_last).contiguous() if last and rank == len(size) else y

    def exact(t: Any, x: Any, *others: Any) -> Any:  # with channels last, gradients of avg_pool2d are wrong on a GPU
        y = theirs(t, x.permute(to_first).contiguous(), *others)
        return y.permute(to_last).contiguous() if rank == len(size) else y

    floats = tuple(n for n, v in (more or {}).items() if v.dtype == "float")
    layout = "channels last" if last else "channels first"
    return Case(name, shape, {"x": x, **(more or {})}, text, call, ("x", *floats), (str(rank),), layout,
                exact=exact if last else None)  # fmt: skip


def _pools(shape: str, size: tuple[int, int, int, int], last: bool) -> Iterator[Case]:
    yield _case("maxpool", shape, size, last, "maxpool(X, 2)", lambda t, x: t.nn.functional.max_pool2d(x, 2))
    yield _case("maxpool", f"{shape} 3/2", size, last, "maxpool(X, 3, stride=2, pad=1)",
                lambda t, x: t.nn.functional.max_pool2d(x, 3, 2, 1))  # fmt: skip
    yield _case("avgpool", shape, size, last, "avgpool(X, 2)", lambda t, x: t.nn.functional.avg_pool2d(x, 2))
    yield _case("avgpool", f"{shape} 3/1", size, last, "avgpool(X, 3, stride=1, pad=1)",
                lambda t, x: t.nn.functional.avg_pool2d(x, 3, 1, 1))  # fmt: skip
    yield _case("lp_pool", shape, size, last, "lp_pool(X, 2, 2)", lambda t, x: t.nn.functional.lp_pool2d(x, 2, 2))
    yield _case("adaptive_avgpool", shape, size, last, "adaptive_avgpool(X, 3)",
                lambda t, x: t.nn.functional.adaptive_avg_pool2d(x, 3))  # fmt: skip
    yield _case("adaptive_maxpool", shape, size, last, "adaptive_maxpool(X, 3)",
                lambda t, x: t.nn.functional.adaptive_max_pool2d(x, 3))  # fmt: skip
    yield _case("global_avgpool", shape, size, last, "global_avgpool(X)", lambda t, x: x.mean((2, 3)), rank=2)
    yield _case("global_maxpool", shape, size, last, "global_maxpool(X)", lambda t, x: x.amax((2, 3)), rank=2)


def _shuffles(shape: str, size: tuple[int, int, int, int]) -> Iterator[Case]:
    _, c, h, w = size
    if c % 4 or h % 2 or w % 2:
        return
    for name, by in (("channel_shuffle", 4), ("pixel_shuffle", 2), ("pixel_unshuffle", 2)):
        for last in (False, True):
            yield _case(name, shape, size, last, f"{name}(X, {by})",
                        lambda t, x, f=name, by=by: getattr(t.nn.functional, f)(x, by))  # fmt: skip


def _resampling(shape: str, size: tuple[int, int, int, int]) -> Iterator[Case]:
    b, c, h, w = size
    half = (b, max(1, c // 4), h, w)
    for mode in ("nearest", "bilinear", "bicubic"):
        yield _case("interpolate", f"{shape} {mode}", half, False, f'interpolate(X, scale=2, mode="{mode}")',
                    lambda t, x, m=mode: t.nn.functional.interpolate(x, scale_factor=2, mode=m))  # fmt: skip
    yield _case("interpolate", f"{shape} bilinear", half, True, 'interpolate(X, scale=2, mode="bilinear")',
                lambda t, x: t.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"))  # fmt: skip
    if shape in ("huge", "tiny", "odd"):
        yield _case("unfold", shape, half, False, "unfold(X, 3, pad=1)",
                    lambda t, x: t.nn.functional.unfold(x, 3, padding=1), rank=3)  # fmt: skip
        columns = Tensor((b, half[1] * 4, (h // 2) * (w // 2)))
        even = (h // 2 * 2, w // 2 * 2)
        yield Case("fold", shape, {"x": columns}, f"fold(x, [{even[0]}, {even[1]}], 2, stride=2)",
                   lambda t, x, s=even: t.nn.functional.fold(x, s, 2, stride=2), ("x",), ("4",))  # fmt: skip

        def unpooled(t: Any, x: Any, s: tuple[int, int] = (h, w)) -> Any:
            y, places = t.nn.functional.max_pool2d(x, 2, return_indices=True)
            return t.nn.functional.max_unpool2d(y, places, 2, output_size=s)

        yield Case("maxunpool", shape, {"x": Tensor(half)}, f"maxunpool(a, places, 2, size=[{h}, {w}])", unpooled,
                   ("x",), ("4",), before="a, places = maxpool(x, 2, indices=true)")  # fmt: skip


def _convolutions(sizes: Sizes) -> Iterator[Case]:
    b, c, s = max(1, sizes.elements // (8 * sizes.channels * sizes.side**2)), sizes.channels, sizes.side
    odd = c // 2 | 1
    #: shape -> the input, results, kernel, stride, pad, dilation, groups
    shapes: dict[str, tuple[tuple[int, ...], int, int, int, int, int, int]] = {
        "huge": ((b, c, s, s), c, 3, 1, 1, 1, 1), "tiny": ((2, 3, 6, 6), 4, 3, 1, 1, 1, 1),
        "odd": ((3, odd, s // 2 | 1, s // 2 | 1), odd + 2, 3, 1, 1, 1, 1), "one": ((1, c, s, s), c, 3, 1, 1, 1, 1),
        "1x1": ((b, c, s, s), 4 * c, 1, 1, 0, 1, 1), "stride 2": ((b, c, s, s), 2 * c, 3, 2, 1, 1, 1),
        "patches": ((b, 3, 4 * s, 4 * s), c, 16, 16, 0, 1, 1), "stem": ((b, 3, 2 * s, 2 * s), c, 7, 2, 3, 1, 1),
        "depthwise": ((b, 2 * c, s, s), 2 * c, 3, 1, 1, 1, 2 * c),
        "depthwise stride 2": ((b, 2 * c, s, s), 2 * c, 3, 2, 1, 1, 2 * c),
        "depthwise 7x7": ((b, c, s, s), c, 7, 1, 3, 1, c), "groups": ((b, 2 * c, s, s), 2 * c, 3, 1, 1, 1, 8),
        "dilated": ((b, c, s, s), c, 3, 1, 2, 2, 1), "1-D": ((b, c, s * s), c, 3, 1, 1, 1, 1),
        "to few": ((b, c, s, s), 3, 3, 1, 1, 1, 1), "to one 1-D": ((b, c, s * s), 1, 15, 1, 7, 1, 1),
        "from one 1-D": ((b, 1, s * s), c, 15, 1, 7, 1, 1),
        "to one 3-D": ((b, c // 2, 8, s // 2, s // 2), 1, 3, 1, 1, 1, 1),
        "1-D dilated": ((b, c, s * s), c, 2, 1, 4, 8, 1), "3-D": ((max(1, b // 4), c // 2, 8, s // 2, s // 2), c // 2,
                                                                 3, 1, 1, 1, 1),
    }  # fmt: skip
    for shape, (size, out, k, stride, pad, dilation, groups) in shapes.items():
        rank = len(size) - 2
        weight = {"w": Tensor((out, size[1] // groups, *[k] * rank), "unit")}
        words = f"stride={stride}, pad={pad}, dilation={dilation}, groups={groups}"
        for last in (False, True) if rank > 1 else (False,):
            yield _case("conv", shape, size, last, f"conv(X, weight=w, {words})",
                        lambda t, x, w, f=f"conv{rank}d", a=(stride, pad, dilation, groups):
                        getattr(t.nn.functional, f)(x, w, None, *a), weight)  # fmt: skip
    half = (b, c, s // 2, s // 2)
    for shape, (size, out, k, stride, pad) in {
        "to few": (half, 3, 4, 2, 1), "to one 1-D": ((b, 4 * c, s * s), 1, 16, 8, 0),
        "huge": (half, c // 2, 2, 2, 0), "tiny": ((2, 3, 4, 4), 4, 2, 2, 0), "4x4": (half, c // 2, 4, 2, 1),
        "odd": ((3, odd, s // 4 | 1, s // 4 | 1), odd, 3, 1, 1),
    }.items():  # fmt: skip
        rank = len(size) - 2
        weight = {"w": Tensor((size[1], out, *[k] * rank), "unit")}
        yield _case("conv_transpose", shape, size, False, f"conv_transpose(X, weight=w, stride={stride}, pad={pad})",
                    lambda t, x, w, f=f"conv_transpose{rank}d", a=(stride, pad):
                    getattr(t.nn.functional, f)(x, w, None, *a), weight)  # fmt: skip


def _at_places(sizes: Sizes) -> Iterator[Case]:
    b, c, s, _ = sizes.images()["huge"]
    b, c = max(1, b // 8), sizes.channels
    for shape, (n, k, h) in {"huge": (b, c, sizes.side), "tiny": (2, 3, 5), "odd": (3, c // 2 | 1, s // 2 | 1)}.items():
        for mode in ("bilinear", "nearest"):
            two = {"x": Tensor((n, k, h, h)), "g": Tensor((n, h, h, 2), "unit")}
            wrt = ("x", "g") if mode == "bilinear" else ("x",)
            yield Case("grid_sample", f"{shape} {mode}", two, f'grid_sample(x, g, mode="{mode}")',
                       lambda t, x, g, m=mode: t.nn.functional.grid_sample(x, g, mode=m, align_corners=False), wrt,
                       ("4",), dtypes=("f32", "f64"))  # fmt: skip
        yield Case("affine_grid", shape, {"m": Tensor((n, 2, 3))}, f"affine_grid(m, [{h}, {h}])",
                   lambda t, m, n=n, h=h: t.nn.functional.affine_grid(m, [n, 1, h, h], align_corners=False), ("m",),
                   ("4",), dtypes=("f32", "f64"))  # fmt: skip
        boxes = {"x": Tensor((n, k, h, h)), "r": Tensor((8 * n, 4), "boxes", high=h), "i": ids((8 * n,), n)}

        def aligned(t: Any, x: Any, r: Any, i: Any) -> Any:
            import torchvision

            return torchvision.ops.roi_align(x, t.cat([i[:, None].to(r.dtype), r], 1), 7, 1.0, 2)

        yield Case("roi_align", shape, boxes, "roi_align(x, r, i, 7)", aligned, ("x",), ("4",), dtypes=("f32",))
