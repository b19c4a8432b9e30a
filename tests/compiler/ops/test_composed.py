"""Functions that are composed of ops, or came with arguments of their own, against numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from op_laws.evaluation import run
from op_laws.function_gradients import with_gradients
from op_laws.language import check, evaluate
from op_laws.recorder import Recorder, compute, value_of
from sources.in_memory import files

from dslc.base.errors import CODES
from dslc.compiler.check import entries
from dslc.compiler.check.model import check_program
from dslc.compiler.check.rows import Rows, rows_of_batch
from dslc.compiler.ir.graph import order
from dslc.compiler.ir.op import Builder, Mismatch
from dslc.compiler.ir.scalar import argument
from dslc.compiler.ir.sizes import Dim, of_dim
from dslc.compiler.ir.types import DType
from dslc.compiler.ops import registry
from dslc.compiler.ops.elementwise.powers import raised
from dslc.compiler.ops.random.quantile import normal_probability, normal_quantile
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry
from dslc.dsl.diagnostics import CompileError

B = of_dim(Dim("B", 1, 64, 8))
RNG = np.random.default_rng(11)
X = RNG.uniform(-2, 2, (4, 8))
Q = RNG.uniform(-2, 2, (4, 3, 8))
M = RNG.uniform(-2, 2, (4, 5, 5))
T = np.array([[0, 2], [1, 1], [7, 0], [3, 3]], "i4")
IMAGE = RNG.uniform(-2, 2, (4, 2, 6, 6))
AFFINE = RNG.uniform(-1, 1, (4, 2, 3))
PLACES = np.random.default_rng(12).uniform(-1.9, 1.9, (4, 5, 1, 2))
#: Box 1 is three quarters of box 0, and box 2 of box 1; 3 and 4 touch in a corner.
BOXES = np.array([[0.0, 0, 4, 4], [0, 0, 4, 3], [0, 0, 3, 3], [5, 5, 8, 8], [8, 8, 9, 9]])
SCORES = np.array([0.5, 0.4, 0.3, 0.9, 0.1])
WEIGHT = RNG.uniform(-2, 2, (2, 1, 3, 2))
XS, QS, MS, TS, IS = "x: [B, 8]", "q: [B, 3, 8]", "m: [B, 5, 5]", "t: i32[B, 2]", "i: [B, 2, 6, 6]"


def slid(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The windows of each channel times its kernel of w [channels, 1, h, w], summed up."""
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.einsum("bchwij,cij->bchw", windows, w[:, 0])


def parts(x: np.ndarray, stride: int, of: Callable, k: int = 3) -> np.ndarray:
    """``of`` windows of k x k that may reach over the end of [B, C, 6, 6]."""
    starts = range(0, 6, stride)
    return np.stack([np.stack([of(x[:, :, a : a + k, b : b + k], (2, 3)) for b in starts], 2) for a in starts], 2)


def lined(x: np.ndarray) -> np.ndarray:
    """Lines of n pixels as 3n//2, linearly; at the ends, the outer pixel."""
    at = np.clip((np.arange(x.shape[2] * 3 // 2) + 0.5) / 1.5 - 0.5, 0, x.shape[2] - 1)
    return np.apply_along_axis(lambda line: np.interp(at, np.arange(line.size), line), 2, x)


def mapped(width: int, height: int) -> np.ndarray:
    """Where the maps AFFINE take the centres of pixels, which are from -1 to 1 between the borders."""
    x, y = ((2 * np.arange(n) + 1) / n - 1 for n in (width, height))
    pixels = np.stack(np.broadcast_arrays(x, y[:, None], 1.0), -1)
    return np.einsum("bij,hwj->bhwi", AFFINE, pixels)


def mixture(image: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The four pixels around each place [x, y] of images, mixed by their distances."""
    y = np.zeros((*image.shape[:2], *at.shape[1:3]))
    for b, h, w in np.ndindex(at.shape[:3]):
        column, row = at[b, h, w]
        i, j = int(row), int(column)
        rows, columns = np.array([i + 1 - row, row - i]), np.array([j + 1 - column, column - j])
        y[b, :, h, w] = rows @ image[b, :, i : i + 2, j : j + 2] @ columns
    return y


def parts_added(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Row i of x added to row t[i, 0]."""
    y = x.copy()
    np.add.at(y, t[:, 0], x)
    return y


def added(x: np.ndarray) -> np.ndarray:
    y = x.copy()
    np.add.at(y, (np.arange(4)[:, None], T), 1.0)
    return y


VALUES: list[tuple[str, str, str, dict[str, np.ndarray], Callable[[], Any]]] = [
    (XS, "prod(x, over=1)", "[B]", {"x": X}, lambda: X.prod(1)),
    (XS, "logcumsumexp(x)", "[B, 8]", {"x": X}, lambda: np.logaddexp.accumulate(X, 1)),
    (XS, "logcumsumexp(x - 1000, axis=0, reverse=true)", "[B, 8]", {"x": X},
     lambda: np.logaddexp.accumulate(X[::-1], 0)[::-1] - 1000),
    (XS, "logcumsumexp(where(x > 100, x, -inf))", "[B, 8]", {"x": X}, lambda: np.full((4, 8), -np.inf)),
    (XS, "sin(x * pi / 2)", "[B, 8]", {"x": X}, lambda: np.sin(X * np.pi / 2)),
    (XS, "broadcast_to(unsqueeze(x, 1), [-1, 3, -1])", "[B, 3, 8]", {"x": X}, lambda: np.repeat(X[:, None], 3, 1)),
    (XS, "cumprod(x, exclusive=true)", "[B, 8]", {"x": X},
     lambda: np.pad(X[:, :7].cumprod(1), [(0, 0), (1, 0)], constant_values=1)),
    (XS, "cumprod(x, axis=0, reverse=true, exclusive=true)", "[B, 8]", {"x": X},
     lambda: np.pad(X[:0:-1].cumprod(0)[::-1], [(0, 1), (0, 0)], constant_values=1)),
    (XS, "x[..., 2] + x[..., -1, ]", "[B]", {"x": X}, lambda: X[..., 2] + X[..., -1]),
    (XS, "x[0, ...] + x[...][0, ..., 0:8] + x[0, ..., arange(8)]", "[8]", {"x": X}, lambda: 3 * X[0]),
    (XS, "x + unsqueeze(x, 1)[..., 0, 3:5][..., :1]", "[B, 8]", {"x": X}, lambda: X + X[:, 3:4]),
    (XS, "cumsum(x)", "[B, 8]", {"x": X}, lambda: X.cumsum(1)),
    (XS, "cumsum(x, axis=0, reverse=true)", "[B, 8]", {"x": X}, lambda: X[::-1].cumsum(0)[::-1]),
    (XS, "argmin(x) + argmax(x, axis=-1)", "i32[B]", {"x": X}, lambda: X.argmin(1) + X.argmax(1)),
    (XS, "sort(x)[0]", "[B, 8]", {"x": X}, lambda: np.sort(X, 1)),
    (XS, "sort(x, axis=0, descending=true)[0]", "[B, 8]", {"x": X}, lambda: -np.sort(-X, 0)),
    (XS, "argsort(x, axis=0)", "i32[B, 8]", {"x": X}, lambda: np.argsort(X, 0)),
    (TS, "argsort(t, descending=true)", "i32[B, 2]", {"t": T}, lambda: np.argsort(-T, 1, kind="stable")),
    (XS, "roll(x, 3)", "[B, 8]", {"x": X}, lambda: np.roll(X, 3, 1)),
    (XS, "roll(x, -1, axis=0)", "[B, 8]", {"x": X}, lambda: np.roll(X, -1, 0)),
    (QS, "roll(q, [-9, 2], axis=[-1, 0])", "[B, 3, 8]", {"q": Q}, lambda: np.roll(Q, (-9, 2), (2, 0))),
    (XS, "roll(x, [0, 0], axis=[0, 1])", "[B, 8]", {"x": X}, lambda: X),
    (XS, "topk(x, 3)[0]", "[B, 3]", {"x": X}, lambda: -np.sort(-X, 1)[:, :3]),
    (XS, "topk(x, 1, axis=0, largest=false)[1]", "i32[1, 8]", {"x": X}, lambda: np.argsort(X, 0)[:1]),
    (XS, "norm(x)", "[]", {"x": X}, lambda: np.linalg.norm(X)),
    (XS, "norm(x, 1, over=1, keep=true)", "[B, 1]", {"x": X}, lambda: np.abs(X).sum(1, keepdims=True)),
    (QS, "norm(q, 3, over=[1, 2])", "[B]", {"q": Q}, lambda: (np.abs(Q) ** 3).sum((1, 2)) ** (1 / 3)),
    (XS, "cosine_similarity(x, 2 * x)", "[B]", {"x": X}, lambda: np.ones(4)),
    (XS, "cosine_similarity(x, 0 * x)", "[B]", {"x": X}, lambda: np.zeros(4)),
    (XS, "cosine_similarity(x, x[0:1], axis=1)", "[B]", {"x": X},
     lambda: X @ X[0] / np.linalg.norm(X, axis=1) / np.linalg.norm(X[0])),
    (f"{XS}, {TS}", "gather(x, t)", "[B, 2]", {"x": X, "t": T}, lambda: np.take_along_axis(X, T.astype(int), 1)),
    (f"{XS}, {TS}", "scatter_add(x, t, ones([B, 2]), axis=1)", "[B, 8]", {"x": X, "t": T}, lambda: added(X)),
    (f"{XS}, {TS}", "scatter_add(x, t[:, 0], x, axis=0)", "[B, 8]", {"x": X, "t": T % 4},
     lambda: parts_added(X, T % 4)),
    (f"{XS}, {TS}", "scatter_add(zeros([B]), t[:, 0], x[:, 0])", "[B]", {"x": X, "t": T % 4},
     lambda: parts_added(X, T % 4)[:, 0] - X[:, 0]),
    (f"{XS}, {TS}", "scatter_add(zeros([5, 8]), t[:, 0], x, axis=0)[:4]", "[4, 8]", {"x": X, "t": T % 4},
     lambda: parts_added(X, T % 4) - X),
    (MS, "tril(m)", "[B, 5, 5]", {"m": M}, lambda: np.tril(M)),
    (MS, "triu(m, 1) + tril(m, -2)", "[B, 5, 5]", {"m": M}, lambda: np.triu(M, 1) + np.tril(M, -2)),
    (QS, "tril(q, 2)", "[B, 3, 8]", {"q": Q}, lambda: np.tril(Q, 2)),
    (XS, "triu(x)", "[B, 8]", {"x": X}, lambda: np.triu(X)),
    (XS, "where(tri(4, 8, 1), 1, x[0:1])", "[4, 8]", {"x": X}, lambda: np.where(np.tri(4, 8, 1) > 0, 1, X[:1])),
    (XS, 'cast(tri(B), "float") @ x', "[B, 8]", {"x": X}, lambda: X.cumsum(0)),
    (TS, "fmod(t - 3, 2)", "i32[B, 2]", {"t": T}, lambda: np.fmod(T - 3, 2)),
    (TS, "fmod(3 - t, -2 * t)", "i32[B, 2]", {"t": T}, lambda: np.fmod(3 - T, np.where(T, -2 * T, 1)) * (T != 0)),
    (TS, "fmod(-2147483647 - t, -1) + fmod(t + 2147483640, -7)", "i32[B, 2]", {"t": T % 2},
     lambda: np.fmod(T % 2 + 2147483640, -7)),
    ("t: u8[B, 2]", "fmod(t + 250, 7)", "u8[B, 2]", {"t": (T % 6).astype("u1")},
     lambda: ((T % 6 + 250) % 7).astype("u1")),
    (TS, "arange(2) + t", "i32[B, 2]", {"t": T}, lambda: np.arange(2) + T),
    (TS, "arange(7, 2, -3) + t", "i32[B, 2]", {"t": T}, lambda: np.arange(7, 2, -3) + T),
    (XS, 'x + reshape(cast(arange(1, B + 1), "float"), [B, 1])', "[B, 8]", {"x": X},
     lambda: X + np.arange(1, 5)[:, None]),
    (XS, "x @ eye(8, 3)", "[B, 3]", {"x": X}, lambda: X @ np.eye(8, 3)),
    (XS, "x + arange(-1, 1, 0.25)", "[B, 8]", {"x": X}, lambda: X + np.arange(-1, 1, 0.25)),
    (XS, "x * arange(7, -1, -1, dtype=\"float\")", "[B, 8]", {"x": X}, lambda: X * np.arange(7, -1, -1)),
    (XS, "x + reshape(arange(B, dtype=\"float\"), [B, 1])", "[B, 8]", {"x": X}, lambda: X + np.arange(4)[:, None]),
    (XS, "x[0, 0] + arange(B - 1, -B, -1, dtype=\"float\")", "[2 * B - 1]", {"x": X},
     lambda: X[0, 0] + np.arange(3, -4, -1)),
    (XS, "x[0, 0] + arange(B - 1.0, -B, -2.0)", "[B]", {"x": X}, lambda: X[0, 0] + np.arange(3, -4, -2)),
    (XS, "x[0, 0] + arange(0, B, 0.5)", "[2 * B]", {"x": X}, lambda: X[0, 0] + np.arange(0, 4, 0.5)),
    (XS, "x[0, 0] + arange(log(exp(3)), 1 + 2 * B, 4)", "[B // 2]", {"x": X}, lambda: X[0, 0] + np.arange(3.0, 9, 4)),
    (TS, "t[0, 0] + arange(2 * B, B - 2, -3)", "i32[(B + 1) // 3 + 1]", {"t": T},
     lambda: T[0, 0] + np.arange(8, 2, -3)),
    (XS, "x[0, 0] * linspace(0, B - 1, B)", "[B]", {"x": X}, lambda: X[0, 0] * np.linspace(0, 3, 4)),
    (XS, "x[0, 0] * linspace(1.0 / B - 1, 1 - 1.0 / B, 5)", "[5]", {"x": X},
     lambda: X[0, 0] * np.linspace(-0.75, 0.75, 5)),
    (XS, "x[0, 0] * linspace(-sqrt(4), x[0, 1], 3)", "[3]", {"x": X},
     lambda: X[0, 0] * np.linspace(-2, X[0, 1], 3)),
    (XS, "x * (B * 0.5) + B^-2 + B^2 / 2.0 + 1.5 // B", "[B, 8]", {"x": X}, lambda: X * 2 + 1 / 16 + 8),
    (XS, "clip(x, -1 / sqrt(4), sqrt(2) / 2)", "[B, 8]", {"x": X}, lambda: np.clip(X, -0.5, 2**-0.5)),
    (XS, "x * int(log2(8)) + round(sqrt(5))", "[B, 8]", {"x": X}, lambda: X * 3 + 2),
    (XS, "x[0, 0] * arange(0.1, 1.3, 0.1)", "[12]", {"x": X}, lambda: X[0, 0] * np.arange(0.1, 1.3, 0.1)),
    (XS, "x[0, 0] + arange(3.0, 1.0)", "[0]", {"x": X}, lambda: X[0, 0] + np.arange(3.0, 1.0)),
    (TS, "cast(t, \"i64\") + arange(2^40, 2^40 - 6 * 2^36, -3 * 2^36, dtype=\"i64\")", "i64[B, 2]", {"t": T},
     lambda: T + np.arange(2**40, 2**40 - 6 * 2**36, -3 * 2**36)),
    (TS, 'cast(t, "u8") + arange(254, 256, dtype="u8")', "u8[B, 2]", {"t": T},
     lambda: T.astype("u1") + np.arange(254, 256, dtype="u1")),
    (XS, "x * linspace(-1, 2.5, 8)", "[B, 8]", {"x": X}, lambda: X * np.linspace(-1, 2.5, 8)),
    (XS, "reshape(linspace(0, 1, B), [B, 1]) + x", "[B, 8]", {"x": X}, lambda: np.linspace(0, 1, 4)[:, None] + X),
    (XS, "linspace(3, 4, 1) + x", "[B, 8]", {"x": X}, lambda: 3 + X),
    (XS, "x @ tensor([[0.5, i] for i in 0..8])", "[B, 2]", {"x": X},
     lambda: X @ np.array([[0.5, i] for i in range(8)])),
    (XS, "maximum(x, tensor([-inf, 0, 1, 2, 3, 4, 5, 6]))", "[B, 8]", {"x": X},
     lambda: np.maximum(X, [-np.inf, 0, 1, 2, 3, 4, 5, 6])),
    (TS, "t + tensor([[7, -1]])", "i32[B, 2]", {"t": T}, lambda: T + [[7, -1]]),
    (TS, 'cast(t, "i64") * tensor([2^40, 3], dtype="i64")', "i64[B, 2]", {"t": T}, lambda: T * np.array([2**40, 3])),
    (XS, "where(tensor([true, false] + [true for i in 0..6]), x, 0)", "[B, 8]", {"x": X},
     lambda: X * [1, 0, 1, 1, 1, 1, 1, 1]),
    (XS, "x @ tensor([[(i * 7 + j * 3) % 11 / 8 for j in 0..9] for i in 0..8])", "[B, 9]", {"x": X},
     lambda: X @ np.array([[(i * 7 + j * 3) % 11 / 8 for j in range(9)] for i in range(8)])),
    (TS, "t + tensor(1..3)", "i32[B, 2]", {"t": T}, lambda: T + [1, 2]),
    (TS, 't + full([2], 3, dtype="i32") - ones([1], dtype="i32")', "i32[B, 2]", {"t": T}, lambda: T + 2),
    (XS, 'where(zeros([8], "b1"), x, full([], B))', "[B, 8]", {"x": X}, lambda: np.full((4, 8), 4.0)),
    (XS, "eye(B) @ x", "[B, 8]", {"x": X}, lambda: X),
    (TS, "tril(t)", "i32[B, 2]", {"t": T}, lambda: np.tril(T)),
    (XS, 'cast(triu(x > 0), "i32")', "i32[B, 8]", {"x": X}, lambda: np.triu(X > 0)),
    (QS, "flip(q, over=[0, -1])", "[B, 3, 8]", {"q": Q}, lambda: Q[::-1, :, ::-1]),
    (XS, "pad(x, [0, 2], [0, 1], value=3)", "[B, 11]", {"x": X},
     lambda: np.pad(X, ((0, 0), (2, 1)), constant_values=3)),
    (QS, 'pad(q, [0, 2, 7], [0, 1, 0], mode="reflect")', "[B, 6, 15]", {"q": Q},
     lambda: np.pad(Q, ((0, 0), (2, 1), (7, 0)), mode="reflect")),
    (QS, 'pad(q, [0, 5, 1], [2, 0, 3], mode="replicate")', "[B + 2, 8, 12]", {"q": Q},
     lambda: np.pad(Q, ((0, 2), (5, 0), (1, 3)), mode="edge")),
    (QS, 'pad(q, [0, 3, 1], [0, 1, 8], mode="circular")', "[B, 7, 17]", {"q": Q},
     lambda: np.pad(Q, ((0, 0), (3, 1), (1, 8)), mode="wrap")),
    (TS, 'pad(t, [0, 0], [0, 1], mode="reflect")', "i32[B, 3]", {"t": T}, lambda: T[:, [0, 1, 0]]),
    (IS, "maxpool(i, 3, stride=4, ceil_mode=true)", "[B, 2, 2, 2]", {"i": IMAGE}, lambda: parts(IMAGE, 4, np.max)),
    (IS, "maxpool(i, [3, 4], stride=[4, 3], pad=[0, 2], ceil_mode=true)[:, :, :, 0]", "[B, 2, 2]", {"i": IMAGE},
     lambda: np.stack([IMAGE[:, :, a : a + 3, :2].max((2, 3)) for a in (0, 4)], 2)),
    (IS, "avgpool(i, 3, stride=4, ceil_mode=true)", "[B, 2, 2, 2]", {"i": IMAGE}, lambda: parts(IMAGE, 4, np.mean)),
    (IS, "avgpool(i, 4, stride=4, pad=1, count_include_pad=false)", "[B, 2, 2, 2]", {"i": IMAGE},
     lambda: np.stack([np.stack([IMAGE[:, :, a, b].mean((2, 3)) for b in (slice(0, 3), slice(3, 6))], 2)
                       for a in (slice(0, 3), slice(3, 6))], 2)),
    (f"{IS}, w: [2, 1, 3, 2]", "conv(i, weight=w, groups=2)", "[B, 2, 4, 5]", {"i": IMAGE, "w": WEIGHT},
     lambda: slid(IMAGE, WEIGHT)),
    (f"{IS}, w: [2, 1, 3, 2]", "conv(i, weight=w, groups=2, bias=true) as c", "[B, 2, 4, 5]",
     {"i": IMAGE, "w": WEIGHT, "c.bias": np.array([1.0, 2])},
     lambda: slid(IMAGE, WEIGHT) + np.array([[[1]], [[2]]])),
    (f"{IS}, w: [2, 1, 3, 2]", "conv_transpose(i, weight=w, groups=2)", "[B, 2, 8, 7]", {"i": IMAGE, "w": WEIGHT},
     lambda: slid(np.pad(IMAGE, ((0, 0), (0, 0), (2, 2), (1, 1))), WEIGHT[:, :, ::-1, ::-1])),
    (IS, "interpolate(i, scale=2)", "[B, 2, 12, 12]", {"i": IMAGE}, lambda: IMAGE.repeat(2, 2).repeat(2, 3)),
    (IS, "interpolate(i, size=[3, 2])", "[B, 2, 3, 2]", {"i": IMAGE}, lambda: IMAGE[:, :, ::2, ::3]),
    (IS, 'interpolate(i, size=[3, 6], mode="bilinear")', "[B, 2, 3, 6]", {"i": IMAGE},
     lambda: (IMAGE[:, :, ::2] + IMAGE[:, :, 1::2]) / 2),
    (IS, 'interpolate(i, scale=[0.5, 1.5], mode="nearest-exact")', "[B, 2, 3, 9]", {"i": IMAGE},
     lambda: IMAGE[:, :, 1::2][..., [0, 1, 1, 2, 3, 3, 4, 5, 5]]),
    (IS, 'interpolate(i, size=[11, 6], mode="bilinear", align_corners=true)[:, :, 1::2]', "[B, 2, 5, 6]", {"i": IMAGE},
     lambda: (IMAGE[:, :, 1:] + IMAGE[:, :, :-1]) / 2),
    (IS, 'interpolate(i, scale=0.5, mode="bilinear", antialias=true)[:, :, 1, 1]', "[B, 2]", {"i": IMAGE},
     lambda: np.einsum("bchw,h,w->bc", IMAGE[:, :, 1:5, 1:5], *2 * [np.array([1, 3, 3, 1]) / 8])),
    (IS, 'interpolate(i, scale=0.5, mode="area")', "[B, 2, 3, 3]", {"i": IMAGE}, lambda: parts(IMAGE, 2, np.mean, 2)),
    ("t: [B, 2, B]", 'interpolate(t, scale=1.5, mode="linear", antialias=true)', "[B, 2, (3*B)//2]",
     {"t": IMAGE[:, :, 0, :4]}, lambda: lined(IMAGE[:, :, 0, :4])),
    ("a: [B, 2, 3]", "affine_grid(a, [2, 3])", "[B, 2, 3, 2]", {"a": AFFINE}, lambda: mapped(3, 2)),
    ("a: [B, 2, 3]", "affine_grid(a, [2, 1], align_corners=true)[:, 1]", "[B, 1, 2]", {"a": AFFINE},
     lambda: (AFFINE[:, :, 1] + AFFINE[:, :, 2])[:, None]),
    (f"{IS}, g: [B, 5, 1, 2]", "grid_sample(i, g)", "[B, 2, 5, 1]", {"i": IMAGE, "g": PLACES},
     lambda: mixture(np.pad(IMAGE, ((0, 0), (0, 0), (6, 6), (6, 6))), (PLACES + 1) * 3 - 0.5 + 6)),
    (f"{IS}, g: [B, 5, 1, 2]", 'grid_sample(i, g, padding_mode="border", align_corners=true)', "[B, 2, 5, 1]",
     {"i": IMAGE, "g": PLACES},
     lambda: mixture(np.pad(IMAGE, ((0, 0), (0, 0), (6, 6), (6, 6)), "edge"), (PLACES + 1) * 2.5 + 6)),
    (f"{IS}, g: [B, 5, 1, 2]", 'grid_sample(i, g, padding_mode="reflection")', "[B, 2, 5, 1]",
     {"i": IMAGE, "g": PLACES},
     lambda: mixture(np.pad(IMAGE, ((0, 0), (0, 0), (6, 6), (6, 6)), "symmetric"), (PLACES + 1) * 3 - 0.5 + 6)),
    (f"{IS}, g: [B, 5, 1, 2]", 'grid_sample(i, g, mode="nearest", padding_mode="border")', "[B, 2, 5, 1]",
     {"i": IMAGE, "g": PLACES},
     lambda: mixture(np.pad(IMAGE, ((0, 0), (0, 0), (6, 6), (6, 6)), "edge"), np.rint((PLACES + 1) * 3 - 0.5) + 6)),
    (f"{IS}, b: [B, 4], t: i32[B]", "roi_align(i, b, t, [2, 1], sampling_ratio=1, aligned=true)", "[B, 2, 2, 1]",
     {"i": IMAGE, "b": np.array([[0.0, 0, 4, 4]] * 4), "t": np.array([3, 2, 1, 0], "i4")},
     lambda: np.stack([IMAGE[::-1, :, a : a + 2, 1:3].mean((2, 3)) for a in (0, 2)], 2)[..., None]),
    (f"{IS}, b: [B, 4], t: i32[B]", "roi_align(i, b, t, 1, scale=0.5, sampling_ratio=1)[:, :, 0, 0]", "[B, 2]",
     {"i": IMAGE, "b": np.array([[7.0, 7, 7, 7]] * 4), "t": np.array([0, 1, 2, 3], "i4")},
     lambda: IMAGE[:, :, 4, 4]),
    ("b: [5, 4], s: [5]", "nms(b, s)[0]", "i32[5]", {"b": BOXES, "s": SCORES}, lambda: [3, 0, 4, -1, -1]),
    ("b: [5, 4], s: [5]", "nms(b, s, 0.9)[0]", "i32[5]", {"b": BOXES, "s": SCORES}, lambda: [3, 0, 1, 2, 4]),
    ("b: [5, 4], s: [5]", "nms(b, s)[1]", "b1[5]", {"b": BOXES, "s": SCORES},
     lambda: [True, False, False, True, True]),
    ("b: [B, 5, 4], s: [B, 5]", "nms(b, s)[1]", "b1[B, 5]",
     {"b": np.stack([BOXES] * 4), "s": np.stack([SCORES, -SCORES] * 2)},
     lambda: [[True, False, False, True, True], [False, False, True, True, True]] * 2),
    (IS, "adaptive_avgpool(i, [2, 1])", "[B, 2, 2, 1]", {"i": IMAGE},
     lambda: IMAGE.reshape(4, 2, 2, 3, 6).mean((3, 4))[..., None]),
    (IS, "adaptive_maxpool(i, 3)", "[B, 2, 3, 3]", {"i": IMAGE},
     lambda: IMAGE.reshape(4, 2, 3, 2, 3, 2).max((3, 5))),
    (IS, "adaptive_avgpool(i, 4)[:, :, 1, 3]", "[B, 2]", {"i": IMAGE}, lambda: IMAGE[:, :, 1:3, 4:6].mean((2, 3))),
    (IS, "global_avgpool(i)", "[B, 2]", {"i": IMAGE}, lambda: IMAGE.mean((2, 3))),
    (IS, "global_maxpool(i, keep=true)", "[B, 2, 1, 1]", {"i": IMAGE}, lambda: IMAGE.max((2, 3), keepdims=True)),
    (IS, "instancenorm(i, eps=1e-3)", "[B, 2, 6, 6]", {"i": IMAGE},
     lambda: (IMAGE - IMAGE.mean((2, 3), keepdims=True)) / np.sqrt(IMAGE.var((2, 3), keepdims=True) + 1e-3)),
    (IS, "instancenorm(i, affine=true) as n", "[B, 2, 6, 6]",
     {"i": IMAGE, "n.weight": np.zeros(2), "n.bias": np.array([1.0, 2])},
     lambda: np.broadcast_to([[[[1]], [[2]]]], (4, 2, 6, 6))),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expression", "result", "arrays", "expected"), VALUES, ids=[v[1] for v in VALUES])
def test_functions_have_these_values(
    given: str, expression: str, result: str, arrays: dict[str, Any], expected: Callable[[], Any], tmp_path: Path
) -> None:
    reference = expected()
    got = evaluate(check(tmp_path, given, f"  return {expression}", result), arrays, B=4)
    assert got.shape == np.shape(reference)
    np.testing.assert_allclose(got, reference, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, math.inf])
def test_distances_are_those_of_a_loop_and_have_no_gradient_at_zero(p: float) -> None:
    x, y = RNG.uniform(-2, 2, (2, 3, 4)), RNG.uniform(-2, 2, (5, 4))
    y[2] = x[1, 1]
    [found], gradients = with_gradients(lambda call, *xs: call.build("cdist", *xs, p), [x, y])
    expected = [[[np.linalg.norm(a - b, p) for b in y] for a in rows] for rows in x]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0)
    assert found[1, 1, 2] == 0 and all(np.isfinite(g).all() for g in gradients)
    _, [alone, _] = with_gradients(lambda call, *xs: call.build("cdist", *xs, p), [x[1, 1:2], y[2:3]])
    assert not alone.any()


@pytest.mark.parametrize("p", ["1", "2", "3"])
def test_training_keeps_the_differences_of_distances_once(p: str) -> None:
    text = f"""nn 1
model M(x: [64, 32, 8]) -> [64, 32, 48] {{
  param codes: [48, 8] = normal(1)
  return cdist(x |> linear(8) as fc, codes, p={p})
}}
train M() {{
  loss      = mean(output)
  optimizer = sgd(lr=0.1)
}}
"""
    program, _ = compile_entry(check_program(files(text)), "train_step", {}, Options())
    assert program.memory is not None
    differences = 4 * 64 * 32 * 48 * 8
    assert differences <= program.memory.work_bytes < 1.5 * differences


def test_the_gradient_of_a_norm_at_zero_is_zero() -> None:
    x = np.array([[0.0, 0.0, 0.0], [3.0, 0.0, 4.0]])
    for p, expected in ((2.0, [0.6, 0, 0.8]), (1.0, [1, 0, 1]), (3.0, None)):
        value, dy = value_of(x), value_of(np.ones(2))
        node = Builder().node(registry.ops()["norm"], value, over=(1,), keep=False, p=p)
        [found] = node.op.grad(node, [dy], Builder())
        assert found is not None
        [norm] = run([node.out], {value: x})
        [got] = run([found], {value: x, node.out: norm, dy: np.ones(2)})
        np.testing.assert_array_equal(got[0], 0)
        assert np.isfinite(got).all()
        if expected is not None:
            np.testing.assert_allclose(got[1], expected, rtol=1e-12)


def test_small_whole_powers_are_products() -> None:
    for exponent, whole in ((1.0, True), (3.0, True), (-2, True), (8, True), (9.0, False), (2.5, False), (0, False)):
        tree = raised(argument(0), exponent)
        assert ("function='pow'" in repr(tree)) is not whole
    for p, whole in ((3.0, True), (2.5, False)):
        value, dy = value_of(X), value_of(np.ones(len(X)))
        node = Builder().node(registry.ops()["norm"], value, over=(1,), keep=False, p=p)
        [dx] = node.op.grad(node, [dy], Builder())
        assert dx is not None and ("pow" in {each.op.name for each in order([dx])}) is not whole


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_in_evaluation_a_norm_is_a_root_of_a_sum(p: float) -> None:
    value = value_of(X)
    for over, keep in (((0, 1), False), ((1,), True)):
        node = Builder().node(registry.ops()["norm"], value, over=over, keep=keep, p=p)
        stand_in = node.op.in_eval(node, Builder())
        assert stand_in is not None
        values = run([*stand_in, node.out], {value: X})
        np.testing.assert_allclose(*values, rtol=1e-13)
        assert values[0].shape == values[1].shape


ROWS_APART = [
    ("reshape(reshape(x, [4*B, 2]), [B, 4, 2])", "[B, 4, 2]", Rows.APART),
    ("reshape(linear(reshape(x, [2*B, 4]), 3), [B, 6])", "[B, 6]", Rows.APART),
    ("gather(x, argmax(reshape(x, [B, 8, 1]), axis=1))", "[B, 1]", Rows.APART),
    ("x - flip(x, over=1)", "[B, 8]", Rows.APART),
    ("x - flip(x, over=0)", "[B, 8]", Rows.UNKNOWN),
    ("cumsum(x, axis=0)", "[B, 8]", Rows.UNKNOWN),
    ("reshape(transpose(reshape(x, [B, 2, 4]), [1, 0, 2]), [B, 8])", "[B, 8]", Rows.UNKNOWN),
    ('x + reshape(arange(B, dtype="float"), [B, 1])', "[B, 8]", Rows.TOGETHER),
    ('x + arange(8, dtype="float")', "[B, 8]", Rows.APART),
    ('x + cast(reshape(arange(B) % 1, [B, 1]), "float")', "[B, 8]", Rows.TOGETHER),
    ("x * reshape(linspace(0, 1, B), [B, 1])", "[B, 8]", Rows.TOGETHER),
    ("x + rand([B, 8])", "[B, 8]", Rows.APART),
    ("x + rand([8])", "[B, 8]", Rows.APART),
    ("x + transpose(rand([8, B]))", "[B, 8]", Rows.TOGETHER),
    ("x + ones([B, 8]) * 2", "[B, 8]", Rows.APART),
    ("x + reshape(ones([B]), [B, 1])", "[B, 8]", Rows.APART),
    ("x + ones([B, 4]) @ ones([4, 8])", "[B, 8]", Rows.APART),
    ("x + sum(ones([B, 2, 8]), over=1)", "[B, 8]", Rows.APART),
    ("x + reshape(softmax(ones([B, 2, 4])), [B, 8])", "[B, 8]", Rows.APART),
    ("x + transpose(cumsum(ones([8, B]), axis=0))", "[B, 8]", Rows.APART),
    ("x + transpose(cumsum(ones([8, B]), axis=1))", "[B, 8]", Rows.TOGETHER),
    ("x + softmax(ones([B, 8]), axis=0)", "[B, 8]", Rows.TOGETHER),
    ("gradient(sum(tanh(layernorm(linear(x, 4)))), x)", "[B, 8]", Rows.APART),
    ("gradient(sum(gelu(linear(x, 4)), over=1), x)", "[B, 8]", Rows.APART),
    ("gradient(max(x, over=1) * logsumexp(x, over=1), x)", "[B, 8]", Rows.APART),
    ("gradient(mean(tanh(x)), x)", "[B, 8]", Rows.TOGETHER),
    ("x + sum(ones([B, 8]), over=0)", "[B, 8]", Rows.TOGETHER),
    ("x + cumsum(ones([B, 8]), axis=0)", "[B, 8]", Rows.TOGETHER),
    ("x / B", "[B, 8]", Rows.TOGETHER),
    ('x + broadcast_to(arange(8, dtype="float"), [B, 8])', "[B, 8]", Rows.APART),
    ("where(reshape(arange(B) == 0, [B, 1]), x, -x)", "[B, 8]", Rows.TOGETHER),
    ("x + sum(reshape(x, [B, 1, 8]) + ones([1, B, 1]), over=1)", "[B, 8]", Rows.UNKNOWN),
    (
        'reshape(reshape(x, [B, 1, 8]) @ (ones([B, 8, 8]) * reshape(cast(arange(B), "float"), [B, 1, 1])), [B, 8])',
        "[B, 8]",
        Rows.TOGETHER,
    ),
    ('gather(x, cast(reshape(arange(B), [B, 1]) * 0, "i32"))', "[B, 1]", Rows.UNKNOWN),
    ("x[arange(B), argmax(x, axis=1)]", "[B]", Rows.APART),
    ("x[arange(B)]", "[B, 8]", Rows.APART),
    ("lstm(reshape(x, [B, 4, 2]), 3)[0]", "[B, 4, 3]", Rows.APART),
    ("gru(reshape(x, [B, 4, 2]), 3, layers=2, bidirectional=true, lengths=argmax(x))[0]", "[B, 4, 6]", Rows.APART),
    ("transpose(reshape(reshape(transpose(x), [8*B]) * 2 + 1, [8, B]))", "[B, 8]", Rows.APART),
    ("transpose(reshape(flip(reshape(transpose(x), [8*B]), over=0), [8, B]))", "[B, 8]", Rows.UNKNOWN),
    ("reshape(reshape(transpose(x), [8*B]) * 2, [B, 8])", "[B, 8]", Rows.UNKNOWN),
    ("reshape(reshape(transpose(reshape(x, [B, 2, 4]), [1, 0, 2]), [2, 4*B]) + 1, [8*B])[:B]", "[B]", Rows.UNKNOWN),
    (
        "sdpa(broadcast_to(ones([2, 4]), [B, 2, 4]), reshape(x, [B, 2, 4]), reshape(x, [B, 2, 4]))",
        "[B, 2, 4]",
        Rows.APART,
    ),
    ("x[reshape(arange(B), [B, 1]), argsort(x)[:, :3]]", "[B, 3]", Rows.APART),
    ("reshape(x, [B, 2, 4])[arange(B), argmax(x, axis=1) % 2, argmin(x, axis=1) % 4]", "[B]", Rows.APART),
    ("reshape(x, [B, 2, 4])[arange(B), argmax(x, axis=1) % 2]", "[B, 4]", Rows.APART),
    ('x[reshape(arange(B), [B, 1]), full([B, 2], 1, dtype="i32")]', "[B, 2]", Rows.APART),
    ("x[arange(B) * 1, argmax(x, axis=1)]", "[B]", Rows.UNKNOWN),
    ("x[arange(B) % 2, argmax(x, axis=1)]", "[B]", Rows.UNKNOWN),
    ("x[arange(B - 1, -1, -1), argmax(x, axis=1)]", "[B]", Rows.UNKNOWN),
    ("x[argmax(x, axis=1) % B, arange(B) % 8]", "[B]", Rows.TOGETHER),
    ("reshape(x, [2*B, 4])[arange(B), argmax(x, axis=1) % 4]", "[B]", Rows.UNKNOWN),
    ("flip(x, over=0)[arange(B), argmax(x, axis=1)]", "[B]", Rows.TOGETHER),
    ('x + cast(reshape(arange(B), [B, 1]), "float") * 0', "[B, 8]", Rows.TOGETHER),
    ("x + reshape(ones([64])[arange(B)], [B, 1])", "[B, 8]", Rows.TOGETHER),
    ("x[:, 0] + linspace(0, 1, 64)[arange(B)]", "[B]", Rows.TOGETHER),
    ('flip(x, over=0) + reshape(arange(B, dtype="float"), [B, 1])', "[B, 8]", Rows.TOGETHER),
]


@pytest.mark.parametrize(("expression", "result", "rows"), ROWS_APART)
def test_whether_predict_keeps_rows_apart(expression: str, result: str, rows: Rows, tmp_path: Path) -> None:
    checked = check(tmp_path, XS, f"  return {expression}", result)
    one, other = (entries.predict(checked, {"B": size}).graph for size in (4, 8))
    assert rows_of_batch(one, other, {"x"}) is rows


@pytest.mark.parametrize(
    ("step", "rows"), [("concat([xt, h], axis=1)", Rows.APART), ("cumsum(xt + h, axis=0)", Rows.UNKNOWN)]
)
def test_whether_a_loop_keeps_rows_apart(step: str, rows: Rows, tmp_path: Path) -> None:
    """Its carry begins with equal rows, as many as it has columns."""
    loop = (
        f"  h = zeros([B, 4])\n  scan xt in reshape(x, [B, 2, 4]) along 1 carry h {{ h = tanh(linear({step}, 4)) }}\n"
    )
    checked = check(tmp_path, XS, f"{loop}  return h", "[B, 4]")
    one, other = (entries.predict(checked, {"B": size}).graph for size in (4, 8))
    assert rows_of_batch(one, other, {"x"}) is rows


OWN = """  rows = {rows}
  best = reshape(x, [B, 2, 4])
  ids = argmax(x, axis=1) % 4
  scan t in arange(3) along 0 carry ids into y {{
    ids = argmax(best[rows, {at}] + cast(t, "float"), axis=1) * 0 + ids
    yield reshape(x, [B, 8])[rows, ids]
  }}
  return transpose(y)
"""


@pytest.mark.parametrize(
    ("read", "at", "rows"),
    [
        ("arange(B)", "ids % 2", Rows.APART),
        ("B - 1 - arange(B)", "ids % 2", Rows.UNKNOWN),
        ("arange(B)", "rows % 2", Rows.UNKNOWN),
    ],
)
def test_whether_a_loop_reads_own_rows(read: str, at: str, rows: Rows, tmp_path: Path) -> None:
    checked = check(tmp_path, XS, OWN.format(rows=read, at=at), "[B, 3]")
    one, other = (entries.predict(checked, {"B": size}).graph for size in (4, 8))
    assert rows_of_batch(one, other, {"x"}) is rows


REFUSED = [
    (XS, "roll(x, [1, 2])", "E0209", "2 shifts for 1 axes"),
    (XS, "roll(x, 1, axis=[0, 1])", "E0209", "1 shifts for 2 axes"),
    (XS, "roll(x, 1, axis=2)", "E0306", "axis 2"),
    (XS, "roll(x, [1, 2], axis=[1, -1])", "E0306", "twice"),
    (XS, "roll(sum(x), 1)", "E0306", "axes"),
    (XS, "argsort(sum(x))", "E0306", "no axes"),
    (XS, "argsort(x > 0)", "E0203", "needs numbers"),
    (XS, "topk(x, 9)", "E0209", "the 9 greatest of 8"),
    (XS, "topk(x, 0)", "E0209", "the 0 greatest"),
    (XS, "topk(x, 2, axis=0)", "E0209", "the 2 greatest of B"),
    (XS, "argmin(sum(x))", "E0306", "no axes"),
    (XS, "cumsum(sum(x))", "E0306", "no axes"),
    (XS, "x[..., 0, ...]", "E0207", "may stand once"),
    (XS, "x[0, ..., 0, 0]", "E0306", "3 indices"),
    (XS, "[x, x][...]", "E0207", "axes of a tensor"),
    (XS, "broadcast_to(x, [-1, B, 8])", "E0304", "no size to keep"),
    (XS, "norm(x, 0.5)", "E0209", "p = 0.5"),
    (XS, "cosine_similarity(x, x[0])", "E0302", "vectors along axis 1"),
    (XS, "cosine_similarity(x, x, eps=-1e-8)", "E0209", "`eps`"),
    (f"{XS}, {TS}", "gather(x, t, axis=0)", "E0302", "along axis 0"),
    (XS, "gather(x, x)", "E0203", "needs an integer tensor"),
    (f"{XS}, {TS}", "scatter_add(x, t, x)", "E0302", "at indices"),
    (f"{XS}, {TS}", "scatter_add(x, t, t)", "E0204", "into"),
    (f"{XS}, {TS}", "scatter_add(x, t[:, 0], x)", "E0302", "`scatter_add` of [B, 8] along axis 1 at i32[B]"),
    (f"{XS}, {TS}", "scatter_add(x[:, :2], t, x)", "E0302", "`scatter_add` of [B, 8] at indices"),
    (XS, "tril(x[0])", "E0306", "takes a matrix"),
    (XS, "where(tri(-1), x, 0)", "E0209", "size -1"),
    (XS, "x + eye(-1)", "E0209", "size -1"),
    (XS, "x + arange(0, 8, 0)", "E0209", "step 0"),
    (XS, "x + arange(B, 8)", "E0209", "from B to 8 by 1 has -B + 8 elements"),
    (XS, "x + arange(2, B)", "E0209", "never less than 0"),
    (XS, "x + arange(0, 8, B)", "E0205", "not a size"),
    (XS, "x + arange(B, dtype=\"b1\")", "E0209", "compare a range"),
    (XS, "x + arange(sqrt(B))", "E0205", "`arange(n) * step + start`"),
    (XS, "x + arange(true)", "E0202", "is a bool"),
    (XS, "x + arange(0.0, x[0, 0])", "E0205", "must be known"),
    (XS, "x + linspace(x, 1, 8)", "E0205", "a tensor of rank 0"),
    (XS, "x + linspace(true, 1, 8)", "E0202", "is a bool"),
    (XS, "x + linspace(0, inf, 8)", "E0209", "overflows"),
    (XS, "x + zeros([B * 0.5])", "E0202", "not a size"),
    (XS, "linear(x, B * 0.5)", "E0202", "`T // 2`"),
    (XS, "x + arange(0, 1, 1e-300)", "E0209", "elements"),
    (XS, "x + arange(0, 2^40)", "E0209", "elements"),
    (XS, "x + arange(8, dtype=\"bf16\")", "E0209", "rounds it"),
    (XS, "x + arange(0.0, 8, dtype=\"i32\")", "E0209", "truncates them"),
    (XS, "x + arange(0, 256, dtype=\"i8\")", "E0209", "-128 to 127"),
    (XS, "x + arange(inf)", "E0209", "finite"),
    (XS, "x + arange(x)", "E0205", "must be known"),
    (XS, "x + linspace(0, 1, -1)", "E0209", "count from 0"),
    (XS, "x + linspace(-1e308, 1e308, 8)", "E0209", "overflows"),
    (XS, "x + linspace(0, 1, 2.5)", "E0202", "a size"),
    (XS, "x + tensor([[1, 2], [3]])", "E0302", "[1] is a list of 1"),
    (XS, "x + tensor([[1, 2], 3])", "E0302", "[1] is a number"),
    (XS, "x + tensor([1, [2]])", "E0302", "[1] is a list"),
    (XS, "x + tensor([1, true])", "E0204", "numbers and bools"),
    (XS, "x + tensor([B])", "E0205", "the size `B`"),
    (XS, "x + tensor([x])", "E0202", "a tensor"),
    (XS, "x + tensor([\"1\"])", "E0202", "a string"),
    (XS, "x + tensor(\"abc\")", "E0202", "list of numbers"),
    (XS, "x + tensor([1.5], dtype=\"i32\")", "E0204", "1.5 is not a value of i32"),
    (XS, "x + tensor([1], dtype=\"b1\")", "E0204", "1 is not a value of b1"),
    (XS, "x + tensor([nan], dtype=\"u8\")", "E0204", "nan is not a value of u8"),
    (XS, "x + tensor([2^31])", "E0209", 'dtype="i64"'),
    (XS, "x + tensor([256], dtype=\"u8\")", "E0209", "u8 holds 0 to 255"),
    (XS, "x + tensor([1], dtype=\"float16\")", "E0209", '"f16"'),
    (XS, "x + tensor([1], dtype=\"f16\")", "E0209", "rounds it"),
    (XS, "x + tensor([0..600 for j in 0..500])", "E0305", "300,000 numbers"),
    (XS, "x + [1, 2, 3, 4, 5, 6, 7, 8]", "E0202", "makes a tensor of a list"),
    (XS, "x + full([8], [1])", "E0202", "`tensor` makes"),
    (XS, "x + full([8], 1.5, dtype=\"i32\")", "E0204", "1.5 is not a value of i32"),
    (XS, "x + full([8], -1, dtype=\"u8\")", "E0209", "does not fit u8"),
    (XS, "x + zeros([8], \"half\")", "E0209", '"f16"'),
    (XS, "[x for i in 3][0]", "E0202", "runs over a list"),
    (XS, "[x for i in 0..3 if i][0]", "E0202", "a condition is a bool"),
    (XS, "[x for (i, j) in 0..3][0]", "E0208", "2 names"),
    (XS, "[x + i for i in 0..2][0] + i", "E0102", "unknown name `i`"),
    (XS, "x + arange(2147483647, 2147483649)", "E0209", "does not fit i32"),
    (XS, "interpolate(x, scale=2)", "E0203", "slides over"),
    (XS, 'pad(x, [0, 8], mode="reflect")', "E0308", "at least 9"),
    (XS, 'pad(x, [1, 0], mode="reflect")', "E0308", "at least 2"),
    (XS, 'pad(x, [0, 9], [0, 0], mode="circular")', "E0308", "at least 9"),
    (XS, 'pad(x, [0, 1], mode="edge")', "E0209", '"replicate"'),
    (XS, 'pad(x, [0, 1], mode="reflect", value=1)', "E0209", "no meaning"),
    (XS, 'pad(x, [0, -1], mode="reflect")', "E0209", "negative"),
    ("i: [B, 2, B, 6]", "maxpool(i, 2, stride=3, ceil_mode=true)", "E0303", "a stride of at most 2"),
    (IS, "conv(i, pad=1)", "E0201", "`out` and `k`"),
    (IS, "conv_transpose(i, 3)", "E0201", "`k`"),
    (f"{IS}, w: [2, 2, 3, 2]", "conv(i, 2, weight=w)", "E0209", "`out`"),
    (f"{IS}, w: [2, 2, 3, 2]", "conv(i, weight=w, init=zeros)", "E0209", "`init`"),
    (f"{IS}, w: [2, 2, 3]", "conv(i, weight=w)", "E0203", "rank 3"),
    (f"{IS}, w: [2, 2, B, 2]", "conv(i, weight=w)", "E0303", "no fixed size"),
    (f"{IS}, w: [2, 1, 3, 2]", "conv(i, weight=w)", "E0302", "channels per group"),
    (f"{IS}, w: [3, 2, 3, 2]", "conv_transpose(i, weight=w)", "E0302", "the weight takes"),
    (IS, "interpolate(i)", "E0201", "`size` or `scale`"),
    (IS, "interpolate(i, size=[3, 3], scale=2)", "E0201", "`size` or `scale`"),
    (IS, 'interpolate(i, scale=2, mode="cubic")', "E0209", "cubic"),
    (IS, 'interpolate(i, scale=2, mode="linear")', "E0209", "runs over 1 axes"),
    (IS, "interpolate(i, scale=0)", "E0209", "more than 0"),
    (IS, "interpolate(i, scale=-0.5)", "E0209", "`scale` is -0.5"),
    (IS, "interpolate(i, scale=[2, 1.5, 3])", "E0209", "3 numbers for 2"),
    (IS, "interpolate(i, scale=0.1)", "E0308", "size of 0"),
    (IS, "interpolate(i, scale=2, align_corners=true)", "E0209", "`align_corners` has no meaning"),
    (IS, 'interpolate(i, scale=2, mode="area", antialias=true)', "E0209", "`antialias` has no meaning"),
    (IS, 'interpolate(i, scale=2, mode="trilinear")', "E0209", "runs over 3 axes"),
    ("i: [B, 2, B, 6]", 'interpolate(i, scale=2, mode="area")', "E0303", "ints"),
    (IS, "interpolate(i, size=[3, 3, 3])", "E0209", "3 numbers for 2"),
    (IS, "interpolate(i, size=[0, 3])", "E0308", "size of 0"),
    ("a: [B, 2, 3]", "affine_grid(a, [2, 3, 4])", "E0302", "theta is [B, 3, 4]"),
    ("a: [B, 2, 3]", "affine_grid(a, [2, 0])", "E0308", "at least one pixel"),
    (f"{IS}, g: [B, 5, 1, 2]", 'grid_sample(i, g, mode="area")', "E0209", '"nearest", "bilinear", "bicubic"'),
    (f"{IS}, g: [B, 5, 1, 2]", 'grid_sample(i, g, padding_mode="edge")', "E0209", '"zeros", "border"'),
    (f"{IS}, g: [B, 5, 1, 3]", "grid_sample(i, g)", "E0302", "[B, h, w, 2]"),
    ("v: [B, 1, 2, 2, 2], g: [B, 5, 1, 1, 3]", 'grid_sample(v, g, mode="bicubic")', "E0209", "runs over 2 axes"),
    ("i: [B, 2, 0, 6], g: [B, 5, 1, 2]", "grid_sample(i, g)", "E0308", "at least one pixel"),
    (f"{XS}, {TS}", "roi_align(x, x, t, 7)", "E0306", "[B, C, H, W]"),
    (f"{IS}, {XS}, t: i32[B]", "roi_align(i, x, t, 7)", "E0302", "[R, 4]"),
    (f"{IS}, b: [B, 4], {TS}", "roi_align(i, b, t, 7)", "E0302", "one for each box"),
    (f"{IS}, b: [B, 4], t: i32[B]", "roi_align(i, b, t, 7, sampling_ratio=0)", "E0209", "at least 1"),
    (f"{IS}, b: [B, 4], t: i32[B]", "roi_align(i, b, t, 7, scale=0)", "E0209", "`scale` is 0"),
    (f"{IS}, b: [B, 4], t: i32[B]", "roi_align(i, b, t, [7, 7, 7])", "E0209", "3 numbers"),
    (f"{XS}, b: [B, 4]", "nms(b, x)[0]", "E0302", "scores [N]"),
    (IS, "adaptive_avgpool(i, 0)", "E0209", "at least 1"),
    (XS, "adaptive_maxpool(x, 2)", "E0203", "slides over"),
    (XS, "global_avgpool(x)", "E0203", "slides over"),
    (XS, "instancenorm(x)", "E0203", "slides over"),
    (TS, "bernoulli(t)", "E0203", "needs a float tensor"),
    (XS, "hardswish(x > 0)", "E0203", "needs a float tensor"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expression", "code", "text"), REFUSED, ids=[r[1] for r in REFUSED])
def test_what_does_not_fit_is_refused(given: str, expression: str, code: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        check(tmp_path, given, f"  y = {expression}\n  return zeros([B])")
    assert [d.code for d in caught.value.diagnostics] == [code]
    assert text in str(caught.value)


def test_bernoulli_draws_by_probability() -> None:
    class Drawing(Recorder):
        def random(self, purpose: str, type_shape: Any) -> Any:
            assert purpose == "bernoulli"
            scalars = tuple(self.full(0, DType.I64) for _ in range(3))
            return scalars, {"key": 77, "row_elements": 10_000}

    p = np.repeat([[0.0, 0.1, 0.75, 1.0]], 10_000, axis=0)
    value = value_of(p)
    [got] = run([Drawing(DType.F64).build("bernoulli", value)], {value: p})
    assert set(np.unique(got)) == {0.0, 1.0}
    np.testing.assert_allclose(got.mean(0), [0, 0.1, 0.75, 1], atol=0.015)
    assert got[:, 0].max() == 0 and got[:, 3].min() == 1


def test_weighted_cross_entropy_is_the_formula() -> None:
    x, t = RNG.uniform(-2, 2, (6, 3, 4)), RNG.integers(0, 3, (6, 4))
    weight = np.array([0.5, 2.0, 0.0])
    logp = np.log(np.exp(x) / np.exp(x).sum(1, keepdims=True))
    for smoothing in (0.0, 0.2):
        for ignore in (None, 1):
            counted = np.ones(t.shape, bool) if ignore is None else t != ignore
            total = below = 0.0
            for i, j in np.ndindex(t.shape):
                if counted[i, j]:
                    w = weight[t[i, j]]
                    total += -(1 - smoothing) * w * logp[i, t[i, j], j] - smoothing / 3 * (weight * logp[i, :, j]).sum()
                    below += w
            named: dict[str, Any] = {
                "axis": 1,
                "weight": tuple(weight.tolist()),
                "smoothing": smoothing,
                "ignore_index": ignore,
            }
            assert compute("cross_entropy", [x, t], **named) == pytest.approx(total / below)
            assert compute("cross_entropy", [x, t], **named, reduce="sum") == pytest.approx(total)
            if not smoothing:
                del named["smoothing"]
                assert compute("nll", [logp, t], **named) == pytest.approx(total / below)


@pytest.mark.parametrize(
    ("weight", "code"), [((1.0, 2.0), "E0302"), ((1.0, -1.0, 1.0), "E0209"), ((1.0, float("inf"), 1.0), "E0209")]
)
def test_class_weights_are_checked(weight: tuple[float, ...], code: str) -> None:
    call = Recorder()
    with pytest.raises(Mismatch) as caught:
        call.build("cross_entropy", call.tensor(8, 3), call.tensor(8, dtype=DType.I32), weight=weight)
    assert caught.value.code == code and code in CODES


def test_quantiles_are_those_of_the_normal_distribution() -> None:
    q = np.concatenate([2.0 ** -np.arange(1, 26), 1 - 2.0 ** -np.arange(2, 26), np.linspace(0.001, 0.999, 999)])
    expected = [NormalDist().inv_cdf(p) for p in q]
    np.testing.assert_allclose(normal_quantile(q), expected, rtol=1e-9, atol=1e-7)
    for z in (-5.0, -1.0, 0.0, 2.5):
        assert normal_probability(z) == pytest.approx(NormalDist().cdf(z), rel=1e-12)


def test_truncated_values_lie_inside_and_have_the_right_spread() -> None:
    attrs = {"shape": [40_000], "key": 5, "dtype": "f32", "mean": 0.0, "std": 0.02, "a": -0.04, "b": 0.04}
    [x] = registry.ops()["init_trunc_normal"].meaning([np.array(1)], attrs)
    assert np.abs(x).max() <= np.float32(0.04)
    assert abs(x.mean()) < 4e-4
    assert x.std() == pytest.approx(0.02 * 0.8796, rel=0.01)  # of a normal variable cut at two sigma


@pytest.mark.parametrize("shape", [(8, 6), (8, 2, 3), (4, 12), (2, 2, 12), (1, 48), (8, 6, 1), (16, 3), (48,)])
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_rows_after_a_reshape_are_where_they_are_said_to_be(shape: tuple[int, ...], count: int) -> None:
    """The rows of [8, 6] are 8/count places of axis 0 each; they are followed by their values."""
    call = Recorder()
    y = call.emit(registry.ops()["reshape"], call.tensor(8, 6), shape=shape)
    node: Any = y.producer
    row = np.repeat(np.arange(count), 48 // count).reshape(shape)
    found = node.op.rows_of(node, [0], count)
    possible = [
        axis
        for axis, size in enumerate(shape)
        if size % count == 0
        and (row == np.arange(count).repeat(size // count).reshape(-1, *(1,) * (len(shape) - 1 - axis))).all()
    ]
    assert found == (None if not possible else (possible[0],))


@pytest.mark.parametrize("call", ["maxpool(i, 3, stride=2, pad=1, {})", "avgpool(i, 3, stride=3, {})",
                                  "avgpool(i, 4, stride=2, pad=1, count_include_pad=false, {})",])  # fmt: skip
@pytest.mark.parametrize("n", range(6, 13))
def test_a_last_partial_window_counts_along_an_axis_of_unknown_size(call: str, n: int, tmp_path: Path) -> None:
    pool, given = call.format("ceil_mode=true"), {"i": np.random.default_rng(n).standard_normal((1, 2, n, 7))}
    found = evaluate(check(tmp_path, "i: [1, 2, B, 7]", f"  return {pool}", "[1, 2, _, _]"), given, B=n)
    fixed = evaluate(check(tmp_path, f"i: [1, 2, {n}, 7]", f"  return {pool}", "[1, 2, _, _]"), given, B=n)
    np.testing.assert_array_equal(found, fixed)
