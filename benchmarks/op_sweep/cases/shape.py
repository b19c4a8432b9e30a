"""Functions that move elements: permutations, parts, repetitions, borders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from op_sweep.case import Case, Tensor

if TYPE_CHECKING:
    from op_sweep.case import Sizes


def cases(sizes: Sizes) -> Iterator[Case]:
    flat, images = sizes.flat(), sizes.images()
    for shape in ("huge", "tiny", "odd", "tall", "wide"):
        x = {"x": Tensor(flat[shape])}
        yield Case("transpose", shape, x, "transpose(x)", lambda t, x: x.T.contiguous(), ("x",))
    for shape, size in images.items():
        x = {"x": Tensor(size)}
        last, first = "transpose(x, [0, 2, 3, 1])", "transpose(x, [0, 3, 1, 2])"
        yield Case("transpose", f"{shape} to last", x, last, lambda t, x: x.permute(0, 2, 3, 1).contiguous(), ("x",))
        yield Case("transpose", f"{shape} to first", x, first, lambda t, x: x.permute(0, 3, 1, 2).contiguous(), ("x",))
    heads = {"x": Tensor((4, max(4, sizes.elements // 2048), 8, 64))}
    yield Case("transpose", "heads", heads, "transpose(x, [0, 2, 1, 3])",
               lambda t, x: x.transpose(1, 2).contiguous(), ("x",))  # fmt: skip
    yield from _patterns(sizes)
    for shape in ("huge", "tiny", "odd"):
        rows, columns = flat[shape]
        x = {"x": Tensor((rows, columns))}
        two = {"x": Tensor((rows, columns)), "y": Tensor((rows, columns))}
        row = {"x": Tensor((columns,))}
        yield Case("broadcast_to", shape, row, f"broadcast_to(x, [{rows}, {columns}])",
                   lambda t, x, n=rows: x.expand(n, -1).contiguous(), ("x",), ("2",))  # fmt: skip
        for axis in (1, 0):
            at = "" if axis else " first axis"
            yield Case("concat", shape + at, two, f"concat([x, y], axis={axis})",
                       lambda t, x, y, n=axis: t.cat([x, y], n), ("x", "y"))  # fmt: skip
            yield Case("stack", shape + at, two, f"stack([x, y], axis={axis})",
                       lambda t, x, y, n=axis: t.stack([x, y], n), ("x", "y"), ("3",))  # fmt: skip
            yield Case("flip", shape + at, x, f"flip(x, {axis})", lambda t, x, n=axis: x.flip(n), ("x",))
            yield Case("roll", shape + at, x, f"roll(x, 2, axis={axis})", lambda t, x, n=axis: x.roll(2, n), ("x",))
            yield Case("repeat_interleave", shape + at, x, f"repeat_interleave(x, 2, axis={axis})",
                       lambda t, x, n=axis: x.repeat_interleave(2, n), ("x",))  # fmt: skip
        yield Case("tile", shape, x, "tile(x, [1, 2])", lambda t, x: x.repeat(1, 2), ("x",))
        parts = {"x": Tensor((rows, 2 * columns))}
        yield Case("split", shape, parts, "split(x, 2, axis=1)",
                   lambda t, x: [y.contiguous() for y in x.chunk(2, 1)], ("x",), ("2", "2"))  # fmt: skip
    yield from _triangles(sizes)
    yield from _borders(sizes)


def _patterns(sizes: Sizes) -> Iterator[Case]:
    for shape, (b, t, h, d) in {"huge": (4, sizes.elements // 2048, 8, 64), "tiny": (2, 3, 2, 4)}.items():
        x = {"x": Tensor((b, t, h * d))}
        yield Case("rearrange", shape, x, f'rearrange(x, "b t (h d) -> b h t d", h={h})',
                   lambda t, x, h=h: x.unflatten(2, (h, -1)).transpose(1, 2).contiguous(), ("x",), ("4",))  # fmt: skip
    b, c, height, width = sizes.images()["huge"]
    x = {"x": Tensor((b, c, height, width))}
    yield Case("rearrange", "to patches", x, 'rearrange(x, "b c (h p) (w q) -> b (h w) (c p q)", p=4, q=4)',
               lambda t, x: x.unflatten(2, (-1, 4)).unflatten(4, (-1, 4)).permute(0, 2, 4, 1, 3, 5)
               .flatten(3).flatten(1, 2), ("x",), ("3",))  # fmt: skip


def _triangles(sizes: Sizes) -> Iterator[Case]:
    q = sizes.quadratic
    for shape, size in {
        "huge": (max(1, sizes.elements // q // q), q, q),
        "tiny": (2, 4, 4),
        "odd": (3, 129, 65),
    }.items():
        x = {"x": Tensor(size)}
        yield Case("tril", shape, x, "tril(x)", lambda t, x: x.tril(), ("x",))
        yield Case("triu", shape, x, "triu(x)", lambda t, x: x.triu(), ("x",))


def _borders(sizes: Sizes) -> Iterator[Case]:
    for mode in ("constant", "reflect", "replicate", "circular"):
        for shape, size in sizes.images().items():
            if shape == "many channels" or (mode != "constant" and shape == "one"):
                continue
            x = {"x": Tensor(size)}
            yield Case("pad", f"{shape} {mode}", x, f'pad(x, [0, 0, 2, 1], mode="{mode}")',
                       lambda t, x, m=mode: t.nn.functional.pad(x, (1, 1, 2, 2), mode=m), ("x",))  # fmt: skip
    b, c, height, width = sizes.images()["huge"]
    x = {"x": Tensor((b, height, width, c))}
    ours = 'transpose(pad(transpose(x, [0, 3, 1, 2]), [0, 0, 1, 1], mode="reflect"), [0, 2, 3, 1])'
    yield Case("pad", "huge reflect", x, ours, lambda t, x: t.nn.functional.pad(
        x.permute(0, 3, 1, 2), (1, 1, 1, 1), mode="reflect").permute(0, 2, 3, 1).contiguous(), ("x",),
        layout="channels last")  # fmt: skip
