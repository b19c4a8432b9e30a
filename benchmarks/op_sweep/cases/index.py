"""Functions that read or write at indices, and that order elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from op_sweep.case import Case, Tensor, ids

if TYPE_CHECKING:
    from op_sweep.case import Sizes


def cases(sizes: Sizes) -> Iterator[Case]:
    for shape, (size, axis) in sizes.lines().items():
        x = {"x": Tensor(size)}
        rank = len(size)
        for name in ("argmax", "argmin"):
            yield Case(name, shape, x, f"{name}(x, axis={axis})",
                       lambda t, x, n=axis, name=name: getattr(x, name)(n), out=(f"i32 {rank - 1}",))  # fmt: skip
        yield Case("sort", shape, x, f"sort(x, axis={axis})",
                   lambda t, x, n=axis: t.sort(x, dim=n, stable=True), ("x",), (str(rank), f"i32 {rank}"))  # fmt: skip
        yield Case("argsort", shape, x, f"argsort(x, axis={axis}, descending=true)",
                   lambda t, x, n=axis: t.argsort(x, dim=n, descending=True, stable=True),
                   out=(f"i32 {rank}",))  # fmt: skip
        few = min(4, size[axis])
        yield Case("topk", shape, x, f"topk(x, {few}, axis={axis})",
                   lambda t, x, n=axis, k=few: t.topk(x, k, n), ("x",), (str(rank), f"i32 {rank}"),
                   compared=False)  # fmt: skip
    yield from _many(sizes)
    yield from _lines(sizes)
    yield from _tables(sizes)
    yield from _boxes(sizes)


def _many(sizes: Sizes) -> Iterator[Case]:
    """The greatest elements when they are many."""
    size = sizes.flat()["huge"]
    yield Case("topk", "a quarter", {"x": Tensor(size)}, "topk(x, 256, axis=1)", lambda t, x: t.topk(x, 256, 1),
               ("x",), ("2", "i32 2"), compared=False)  # fmt: skip
    order = {"x": ids(size, 1 << 20)}
    yield Case("sort", "integers", order, "sort(x, axis=1)", lambda t, x: t.sort(x, dim=1, stable=True),
               out=("i32 2", "i32 2"))  # fmt: skip


def _lines(sizes: Sizes) -> Iterator[Case]:
    """Elements along an axis."""
    for shape, (size, axis) in sizes.lines().items():
        if len(size) != 2:
            continue
        few = list(size)
        few[axis] = max(1, size[axis] // 2)
        rank = str(len(size))
        two = {"x": Tensor(size), "i": ids(few, size[axis])}
        yield Case("gather", shape, two, f"gather(x, i, axis={axis})", lambda t, x, i, n=axis: x.gather(n, i), ("x",),
                   (rank,))  # fmt: skip
        three = {**two, "y": Tensor(tuple(few))}
        yield Case("scatter_add", shape, three, f"scatter_add(x, i, y, axis={axis})",
                   lambda t, x, i, y, n=axis: x.scatter_add(n, i, y), ("x", "y"), (rank,))  # fmt: skip
        if axis == 1:  # different indices on each line, so that both sides agree
            three = {**three, "i": ids(few, size[axis], "apart")}
            yield Case("scatter", shape, three, "scatter(x, i, y, axis=1)",
                       lambda t, x, i, y: x.scatter(1, i, y), ("x", "y"), (rank,))  # fmt: skip
            yield Case("scatter", f"{shape} max", three, 'scatter(x, i, y, axis=1, mode="max")',
                       lambda t, x, i, y: x.scatter_reduce(1, i, y, "amax"), ("x", "y"), (rank,))  # fmt: skip


def _tables(sizes: Sizes) -> Iterator[Case]:
    """Rows of a table."""
    e = sizes.elements
    shapes = {"huge": (e // 1024, e // 2048, 512), "tiny": (7, 5, 4), "odd": (1021, e // 256 | 1, 33),
              "few rows": (16, e // 1024, 512), "narrow": (e // 64, e // 64, 1)}  # fmt: skip
    for shape, (count, length, width) in shapes.items():
        table, i = Tensor((count, width)), ids((length,), count)
        yield Case("embedding", shape, {"i": i, "embedding.weight": table}, f"embedding(i, {count}, {width})",
                   lambda t, i, w: t.nn.functional.embedding(i, w), ("embedding.weight",), ("2",))  # fmt: skip
        for mode in ("mean", "sum", "max") if shape in ("huge", "tiny", "odd") else ():
            bags = {"i": ids((length, 8), count), "embedding_bag.weight": table}
            yield Case("embedding_bag", f"{shape} {mode}", bags, f'embedding_bag(i, {count}, {width}, mode="{mode}")',
                       lambda t, i, w, m=mode: t.nn.functional.embedding_bag(i, w, mode=m),
                       ("embedding_bag.weight",), ("2",), dtypes=("f32", "f64"))  # fmt: skip
        three = {"x": table, "i": i, "y": Tensor((length, width))}
        yield Case("index_put", shape, three, 'index_put(x, [i], y, mode="add")',
                   lambda t, x, i, y: x.index_put((i,), y, accumulate=True), ("x", "y"), ("2",))  # fmt: skip
    for shape, (count, classes) in {"huge": (e // 1024, 1024), "tiny": (5, 3), "tall": (e // 32, 4)}.items():
        yield Case("one_hot", shape, {"i": ids((count,), classes)}, f"one_hot(i, {classes})",
                   lambda t, i, n=classes: t.nn.functional.one_hot(i, n).float(), out=("2",))  # fmt: skip


def _boxes(sizes: Sizes) -> Iterator[Case]:
    def theirs(t, boxes, scores):  # type: ignore[no-untyped-def]  # the module and tensors of torch
        import torchvision

        kept = torchvision.ops.nms(boxes, scores, 0.5)
        indices = t.full((len(boxes),), -1, device=boxes.device)
        indices[: len(kept)] = kept
        return indices, t.zeros(len(boxes), dtype=t.bool, device=boxes.device).index_fill(0, kept, True)

    for shape, count in {"huge": sizes.quadratic, "tiny": 5, "odd": sizes.quadratic // 2 | 1}.items():
        two = {"x": Tensor((count, 4), "boxes", high=256), "y": Tensor((count,))}
        yield Case("nms", shape, two, "nms(x, y)", theirs, out=("i32 1", "b1 1"), dtypes=("f32",))
