"""Normalisations, in training: their statistics are those of the batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from op_sweep.case import Case, Tensor

if TYPE_CHECKING:
    from op_sweep.case import Sizes


def cases(sizes: Sizes) -> Iterator[Case]:
    yield from _rows(sizes)
    for shape, (b, c, h, w) in sizes.images().items():
        for layout, size in {"channels first": (b, c, h, w), "channels last": (b, h, w, c)}.items():
            last = layout == "channels last"
            yield from _of_images(shape, layout, size, c, last)
    yield from _weights(sizes)


def _of_images(shape: str, layout: str, size: tuple[int, ...], c: int, last: bool) -> Iterator[Case]:
    x, kind = Tensor(size), Tensor((c,), "positive")
    inside = "transpose(x, [0, 3, 1, 2])" if last else "x"

    def ours(text: str) -> str:
        return f"transpose({text}, [0, 2, 3, 1])" if last else text

    def placed(x: Any) -> Any:
        return x.permute(0, 3, 1, 2) if last else x

    def back(y: Any) -> Any:
        return y.permute(0, 2, 3, 1).contiguous() if last else y

    three = {"x": x, "batchnorm.weight": kind, "batchnorm.bias": kind}
    running = {"batchnorm.running_mean": kind, "batchnorm.running_var": kind}
    yield Case("batchnorm", shape, three | running, ours(f"batchnorm({inside})"), lambda t, x, w, b, mean, var: back(
        t.nn.functional.batch_norm(placed(x), mean, var, w, b, True)), (*three,), layout=layout)  # fmt: skip
    groups = next(g for g in (8, 5, 4, 3, 1) if c % g == 0)
    three = {"x": x, "groupnorm.weight": kind, "groupnorm.bias": kind}
    yield Case("groupnorm", shape, three, ours(f"groupnorm({inside}, {groups})"), lambda t, x, w, b: back(
        t.nn.functional.group_norm(placed(x), groups, w, b)), (*three,), layout=layout)  # fmt: skip
    yield Case("instancenorm", shape, {"x": x}, ours(f"instancenorm({inside})"), lambda t, x: back(
        t.nn.functional.instance_norm(placed(x))), ("x",), layout=layout,
        compared=not last or size[0] > 1)  # fmt: skip  # PyTorch's gradient of one image from a strided one is wrong
    yield Case("local_response_norm", shape, {"x": x}, ours(f"local_response_norm({inside}, 5)"), lambda t, x: back(
        t.nn.functional.local_response_norm(placed(x), 5)), ("x",), layout=layout)  # fmt: skip


def _rows(sizes: Sizes) -> Iterator[Case]:
    for shape, (rows, columns) in sizes.flat().items():
        x, kind = Tensor((rows, columns)), Tensor((columns,), "positive")
        three = {"x": x, "layernorm.weight": kind, "layernorm.bias": kind}
        yield Case("layernorm", shape, three, "layernorm(x)",
                   lambda t, x, w, b: t.nn.functional.layer_norm(x, w.shape, w, b), (*three,))  # fmt: skip
        two = {"x": x, "rmsnorm.weight": kind}
        yield Case("rmsnorm", shape, two, "rmsnorm(x)",
                   lambda t, x, w: t.nn.functional.rms_norm(x, w.shape, w, 1e-6), (*two,))  # fmt: skip
    rows, columns = sizes.flat()["huge"]
    for shape, width in {"huge": columns, "tiny": 3}.items():
        pixels = {"x": Tensor((rows, width), "below", "u8", 256)}
        mean, std = [0.25] * width, [0.5] * width
        if width == 3:
            yield Case("normalize", shape, pixels, f"normalize(x, mean={mean}, std={std})",
                       lambda t, x: (x.float() / 255 - 0.25) / 0.5, out=("2",))  # fmt: skip
        else:
            yield Case("normalize", shape, pixels, "normalize(x, mean=0.25, std=0.5)",
                       lambda t, x: (x.float() / 255 - 0.25) / 0.5, out=("2",))  # fmt: skip


def _weights(sizes: Sizes) -> Iterator[Case]:
    n = sizes.products
    for shape, size in {"huge": (n, n), "tiny": (3, 5), "odd": (n // 2 | 1, n // 4 | 1)}.items():
        two = {"v": Tensor(size), "g": Tensor(size[:1], "positive")}
        yield Case("weight_norm", shape, two, "weight_norm(v, g)",
                   lambda t, v, g: v * (g / t.linalg.vector_norm(v, dim=1))[:, None], ("v", "g"))  # fmt: skip

        def spectral(t: Any, w: Any, u: Any) -> Any:
            with t.no_grad():
                v = t.nn.functional.normalize(w.T @ u, dim=0, eps=1e-12)
                u = t.nn.functional.normalize(w @ v, dim=0, eps=1e-12)
            return w / (u @ (w @ v))

        two = {"w": Tensor(size), "spectral_norm.u": Tensor(size[:1])}
        yield Case("spectral_norm", shape, two, "spectral_norm(w)", spectral, ("w",))
