"""How to call the functions that resize and pool images, exchange space and channels or read places, and those of
boxes, as ``rules.py``."""

from __future__ import annotations

from fuzzing.programs import Writer
from fuzzing.rules import rule
from fuzzing.rules_shape import image


@rule("interpolate")
def _interpolate(w: Writer) -> None:
    x = w.pick(lambda v: all(isinstance(s, int) for s in v.shape[1:]), (4,))
    mode = w.rng.choice(["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
    how = "".join(f", {n}=true" for n in ("align_corners", "antialias") if mode[0] == "b" and w.rng.random() < 0.5)
    if w.rng.random() < 0.5:
        scale, sizes = "scale=2", tuple(int(s) * 2 for s in x.shape[2:])
    else:
        scale, sizes = "scale=1.5", tuple(int(s) * 3 // 2 for s in x.shape[2:])
    text = f'interpolate({x.name}, {scale}, mode="{mode}"{how})'
    w.write("interpolate", text, [x], (*x.shape[:2], *sizes), bound=4 * x.bound)


@rule("lp_pool")
def _lp_pool(w: Writer) -> None:
    x = image(w)
    p, of = w.rng.choice([("2", "{x}"), ("1", "{x}"), ("3", "abs({x})"), ("1.5", "abs({x})")])
    k = w.size(1, 2)
    stride = w.rng.choice([None, 1, 2])
    step = stride or k
    counts = [(int(n) - k) // step + 1 for n in x.shape[2:]]
    text = f"lp_pool({of.format(x=x.name)}, {p}, {k}{f', stride={stride}' if stride else ''})"
    also = ("abs",) if "abs" in text else ()
    w.write("lp_pool", text, [x], (*x.shape[:2], *counts), bound=4 * x.bound, also=also)


@rule("pixel_shuffle", "pixel_unshuffle", "channel_shuffle")
def _shuffle(w: Writer) -> None:
    name = w.rng.choice(["pixel_shuffle", "pixel_unshuffle", "channel_shuffle"])
    x = image(w, 1)
    channels, *space = (int(s) for s in x.shape[1:])
    if name == "channel_shuffle":
        groups = w.rng.choice([g for g in range(1, channels + 1) if channels % g == 0])
        w.write(name, f"channel_shuffle({x.name}, {groups})", [x], x.shape)
        return
    r = w.size(1, 3)
    wide = r ** len(space)
    if name == "pixel_shuffle":
        y = w.like((x.shape[0], channels * wide, *space))
        shape = (channels, *(n * r for n in space))
    else:
        y = w.like((x.shape[0], channels, *(n * r for n in space)))
        shape = (channels * wide, *space)
    w.write(name, f"{name}({y.name}, {r})", [y], (x.shape[0], *shape), bound=y.bound)


@rule("affine_grid")
def _affine_grid(w: Writer) -> None:
    axes, corners = w.rng.choice([2, 3]), w.rng.choice(["", ", align_corners=true"])
    theta = w.like((w.pick().shape[0], axes, axes + 1))
    size = tuple(w.size(1, 4) for _ in range(axes))
    shape = (theta.shape[0], *size, axes)
    w.write("affine_grid", f"affine_grid({theta.name}, {list(size)}{corners})", [theta], shape, bound=4 * theta.bound)


@rule("grid_sample")
def _grid_sample(w: Writer) -> None:
    """Places between -1.5 and 1.7: what is a whole position by design has a gradient of its own."""
    x = w.pick(lambda v: all(isinstance(s, int) for s in v.shape[1:]), (4,))
    places = (w.size(1, 4), w.size(1, 4))
    grid = w.like((x.shape[0], *places, 2))
    mode, padding = w.rng.choice(["bilinear", "bicubic"]), w.rng.choice(["zeros", "border", "reflection"])
    how = f'mode="{mode}", padding_mode="{padding}"' + w.rng.choice(["", ", align_corners=true"])
    text = f"grid_sample({x.name}, 1.6 * tanh({grid.name}) + 0.07, {how})"
    w.write("grid_sample", text, [x, grid], (*x.shape[:2], *places), bound=2 * x.bound, also=("tanh",))


@rule("roi_align")
def _roi_align(w: Writer) -> None:
    x = w.pick(lambda v: all(isinstance(s, int) for s in v.shape[1:]), (4,))
    drawn = w.tame(w.like((w.size(1, 4), 4)), 9)
    boxes = w.write("stop_gradient", f"stop_gradient({drawn.name})", [drawn], drawn.shape, diff=False)
    image, size = w.like(boxes.shape[:1], "i", 1), (w.size(1, 3), w.size(1, 3))
    how = f"sampling_ratio={w.rng.choice([1, 2])}" + w.rng.choice(["", ", aligned=true", ", scale=0.5"])
    text = f"roi_align({x.name}, {boxes.name}, {image.name}, {list(size)}, {how})"
    w.write("roi_align", text, [x, boxes, image], (boxes.shape[0], x.shape[1], *size), bound=x.bound)


@rule("nms")
def _nms(w: Writer) -> None:
    scores = w.pick(ranks=(1, 2))
    boxes = w.like((*scores.shape, 4))
    text = f"nms({boxes.name}, {scores.name}, {w.rng.choice([0.2, 0.5])})[1]"
    w.write("nms", text, [boxes, scores], scores.shape, kind="b", diff=False)
