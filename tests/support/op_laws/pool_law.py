"""The law of max pools: a window takes one of its own elements, the first nan if it has one, else the first of the
greatest; padding is never taken, whatever the elements are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from op_laws.evaluation import values_of

from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ops import registry
from dslc.compiler.ops.spatial.channels_last import to_first, to_last

OPS = registry.ops()
INF, NAN = math.inf, math.nan
#: name -> the elements of the image, in turn
IMAGES: dict[str, list[float]] = {
    "minus infinity": [-INF],
    "nan": [NAN],
    "minus infinity and nan": [-INF, -INF, -INF, NAN, -INF, NAN, -INF],
    "minus infinity and a number": [-INF, -INF, -INF, -INF, -INF, -3.0, -INF],
    "infinity": [INF, -INF, 1.0],
    "ties": [2.0, 2.0, 1.0, 2.0, -INF],
    "zeros": [-0.0, 0.0, -0.0, -0.0, 0.0],
    "below zero": [-1.0, -5.0, -2.0, -2.0, -3.0],
}
#: The image's shape, k, stride, pad
WINDOWS: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ((2, 2, 5, 6), (3, 3), (2, 2), (1, 1)),
    ((1, 2, 4, 5), (2, 3), (1, 2), (1, 0)),
    ((1, 1, 3, 3), (4, 2), (1, 1), (2, 1)),
    ((1, 1, 1, 2), (2, 2), (1, 1), (1, 1)),
    ((1, 2, 9), (4,), (3,), (2,)),
    ((1, 2, 6, 7), (6, 5), (2, 3), (3, 2)),  # more taps than are written out one by one
    ((1, 1, 3, 4, 3), (2, 3, 2), (1, 2, 2), (1, 1, 1)),
    ((1, 3, 4, 4), (2, 2), (2, 2), (0, 0)),
]
#: The image's shape, size of an adaptive pool
SIZES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 2, 7, 5), (3, 4)),
    ((1, 1, 5), (2,)),
    ((1, 2, 4, 4), (2, 2)),
]
Runner = Callable[[Node, list[np.ndarray]], Sequence[np.ndarray]]


def nodes() -> Iterator[tuple[str, Node, np.ndarray]]:
    """A name, a max pool of f32, and its image, for every kind of pool, window and image."""
    for image, values in IMAGES.items():
        for shape, k, stride, pad in WINDOWS:
            x, attrs = np.resize(np.array(values, np.float32), shape), {"k": k, "stride": stride, "pad": pad}
            yield f"maxpool of {image}, {k}", Builder(name="here").node(OPS["maxpool"], *values_of([x]), **attrs), x
            last = np.ascontiguousarray(x.transpose(to_last(x.ndim)))
            node = Builder(name="here").node(OPS["maxpool_last"], *values_of([last]), **attrs)
            yield f"maxpool_last of {image}, {k}", node, last
        for shape, k, stride, pad in WINDOWS:
            gaps = tuple(2 if n > 2 * (m - 1) else 1 for n, m in zip(shape[2:], k))
            x, none = np.resize(np.array(values, np.float32), shape), (0,) * len(k)
            attrs = {"k": k, "stride": stride, "pad": pad, "dilation": gaps, "more": none}
            node = Builder(name="here").node(OPS["maxpool_places"], *values_of([x]), **attrs)
            yield f"maxpool_places of {image}, {k}, {gaps}", node, x
        for shape, size in SIZES:
            x = np.resize(np.array(values, np.float32), shape)
            node = Builder(name="here").node(OPS["adaptive_maxpool"], *values_of([x]), size=size)
            yield f"adaptive_maxpool of {image}, {size}", node, x


def broken(node: Node, x: np.ndarray, run: Runner) -> str | None:
    """Where a pool or its gradient keeps the law not; None if it does. ``run`` gives a node's outputs."""
    found = _first_channels(node, list(run(node, [x])))
    image = x.transpose(to_first(x.ndim)) if node.op.name.endswith("_last") else x
    y, place = (np.asarray(a) for a in found)
    dx, dy = np.zeros_like(image), np.arange(1, y.size + 1, dtype=np.float32).reshape(y.shape)
    for at in np.ndindex(y.shape):
        number, element = _taken(node, image, at)
        if place[at] != number:
            return f"the place at {at} is {place[at]}, not {number}"
        if y[at].tobytes() != image[element].tobytes() and not (np.isnan(y[at]) and np.isnan(image[element])):
            return f"the element at {at} is {y[at]}, not {image[element]}"
        dx[element] += dy[at]
    if node.op.name in ("adaptive_maxpool", "maxpool_places"):
        return None  # its gradient is scatter_add at these places
    axes = to_last(y.ndim) if node.op.name.endswith("_last") else tuple(range(y.ndim))
    given = [np.ascontiguousarray(a.transpose(axes)) for a in (dy, place)]
    attrs = {**node.attrs, "size": image.shape[2:]}
    back = Builder(name="here").node(OPS[node.op.name.replace("maxpool", "maxpool_grad")], *values_of(given), **attrs)
    [got] = _first_channels(node, list(run(back, given)))
    return None if np.array_equal(got, dx) else f"the gradient is {got.ravel()}, not {dx.ravel()}"


def _first_channels(node: Node, arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [a.transpose(to_first(a.ndim)) for a in arrays] if node.op.name.endswith("_last") else arrays


def _taken(node: Node, image: np.ndarray, at: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """The number that a pool gives for the element that the window at ``at`` takes, and that element's index."""
    attrs: Any = node.attrs
    space = image.shape[2:]
    best: tuple[int, tuple[int, ...]] | None = None
    for number, where in _adaptive(attrs, space, at) if "size" in attrs else _window(attrs, space, at):
        if not all(0 <= i < n for i, n in zip(where, space)):
            continue
        here = (*at[:2], *where)
        if best is None or image[here] > image[best[1]] or (np.isnan(image[here]) and not np.isnan(image[best[1]])):
            best = number, here
    assert best is not None, "every window has an element"
    return best


def _window(attrs: Any, space: tuple[int, ...], at: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """With dilation an element's number is that in the image, else that in the window."""
    gaps = attrs.get("dilation", (1,) * len(space))
    for number, tap in enumerate(product(*map(range, attrs["k"]))):
        sizes = zip(at[2:], attrs["stride"], tap, gaps, attrs["pad"])
        where = tuple(i * s + t * d - p for i, s, t, d, p in sizes)
        if "dilation" in attrs and all(0 <= i < n for i, n in zip(where, space)):
            number = int(np.ravel_multi_index(where, space))
        yield number, where


def _adaptive(attrs: Any, space: tuple[int, ...], at: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    windows = [range(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(at[2:], space, attrs["size"])]
    for where in product(*windows):
        yield int(np.ravel_multi_index(where, space)), where
