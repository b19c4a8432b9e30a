"""Functions that are composed of several ops against PyTorch in f64: values and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from op_laws.function_gradients import weights_of, with_gradients

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).uniform(-2, 2, shape)


def named(name: str, *args: Any, **more: Any) -> Callable[..., Any]:
    return lambda call, *xs: call.build(name, *xs, *args, **more)


def unpooled(call: Any, x: Any) -> Any:
    return call.build("maxunpool", *call.build("maxpool", x, (2,), indices=True), (2,))


def unpooled_to(call: Any, x: Any) -> Any:
    return call.build("maxunpool", *call.build("maxpool", x, (2,), indices=True), (2,), size=(9, 7))


def both(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """One number for each of two axes."""
    return numbers * (2 // len(numbers))


Case = tuple[str, Callable[..., Any], list[np.ndarray], Callable[..., Any]]
POOLS: list[Case] = [
    *[
        (f"maxpool {shape} {k} {s} {p} {d} {ceil}", named("maxpool", k, s, p, dilation=d, ceil_mode=ceil, indices=True),
         [draw(*shape)], lambda x, a=(k, s, p, d, ceil): getattr(F, f"max_pool{x.ndim - 2}d")(
             x, *a, return_indices=True))
        for shape, k, s, p, d in [
            ((2, 3, 9, 8), (3,), (2,), (1,), (1,)), ((2, 3, 9, 8), (3, 2), (1, 2), (1, 0), (2, 3)),
            ((2, 3, 11), (3,), (2,), (1,), (3,)), ((1, 2, 5, 6, 7), (2,), (2,), (1,), (2,)),
            ((1, 1, 4, 4), (2,), (3,), (0,), (3,)),
        ]
        for ceil in (False, True)
    ],
    ("maxpool with dilation alone", named("maxpool", (3,), (1,), dilation=(2,)), [np.round(draw(2, 3, 9, 8))],
     lambda x: F.max_pool2d(x, 3, 1, dilation=2)),
    ("maxunpool", unpooled, [draw(2, 3, 8, 6)], lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)),
    ("maxunpool to a size", unpooled_to, [draw(2, 3, 9, 7)], lambda x: F.max_unpool2d(
        *F.max_pool2d(x, 2, return_indices=True), 2, output_size=(9, 7))),
    *[
        (f"avgpool {divisor} {ceil} {count}", named("avgpool", (3,), (2,), (1,), ceil_mode=ceil, divisor=divisor,
                                                    count_include_pad=count), [draw(2, 3, 8, 7)],
         lambda x, a=(ceil, count, divisor): F.avg_pool2d(x, 3, 2, 1, *a))
        for divisor in (None, 5, -2) for ceil in (False, True) for count in (False, True)
    ],
    ("avgpool with dilation", named("avgpool", (3, 2), (1, 2), (2, 1), dilation=(2, 3)), [draw(2, 3, 9, 8)],
     lambda x: F.conv2d(x, torch.full((3, 1, 3, 2), 1 / 6, dtype=x.dtype), stride=(1, 2), padding=(2, 1),
                        dilation=(2, 3), groups=3)),
]  # fmt: skip
WINDOWS: list[Case] = [
    *[
        (f"unfold {k} {s} {p} {d}", named("unfold", k, s, p, d), [draw(2, 3, 9, 8)],
         lambda x, a=(k, d, p, s): F.unfold(x, *map(both, a)))
        for k, s, p, d in [((3,), (1,), (0,), (1,)), ((3, 2), (2, 3), (1, 2), (2, 1)), ((2,), (2,), (0,), (3,))]
    ],
    *[
        (f"fold {k} {s} {p} {d}", named("fold", (9, 8), k, s, p, d), [draw(2, 3 * k[0] * k[-1], count)],
         lambda x, a=(k, d, p, s): F.fold(x, (9, 8), *map(both, a)))
        for k, s, p, d, count in [((3,), (1,), (0,), (1,), 42), ((3, 2), (2, 3), (1, 2), (2, 1), 16),
                                  ((2,), (2,), (0,), (3,), 9)]
    ],
]  # fmt: skip
SAME = np.round(draw(5, 3, seed=2))
DISTANCES: list[Case] = [
    (f"cdist {p} {[x.shape for x in xs]}", named("cdist", p), xs, lambda x, y, p=p: torch.cdist(x, y, p))
    for p in (1.0, 1.5, 2.0, 3.0, math.inf)
    for xs in ([draw(5, 3), draw(4, 3)], [draw(2, 1, 5, 3), draw(3, 4, 3)], [SAME, SAME[::-1].copy()])
    if p != math.inf or xs[0] is not SAME  # equal differences share the gradient evenly
]
TIMES, TARGETS = np.array([9, 7, 9, 4, 1], np.int32), np.array([4, 3, 0, 2, 2], np.int32)
LABELS = np.array(
    [[1, 1, 2, 5], [3, 4, 3, 0], [0, 0, 0, 0], [2, 2, 1, 1], [4, 5, 0, 0]], np.int32
)  # the last has no path


def ctc(reduce: str, blank: int, zero: bool) -> Callable[..., Any]:
    def build(call: Any, x: Any, *more: Any) -> Any:
        return call.build("ctc", call.build("log_softmax", x), *more, blank, reduce, zero)

    return build


LOWER = np.where(np.arange(12).reshape(4, 3) % 5 == 0, draw(4, 3), draw(1, 3, seed=3) - 0.5)  # some are elements of x
LIMITS: list[Case] = [
    ("clip to tensors", lambda call, x, a, b: call.build("clip", x, a, b), [draw(4, 3), LOWER, LOWER + 1],
     lambda x, a, b: torch.clamp(x, a, b)),
    ("clip to a tensor and a number", lambda call, x, a: call.build("clip", x, low=-0.2, high=a),
     [draw(4, 3), draw(3, seed=4)],
     lambda x, a: torch.minimum(torch.clamp(x, min=-0.2), a)),
    ("clip to a row", lambda call, x, a: call.build("clip", x, low=a), [draw(4, 3), draw(3, seed=5)],
     lambda x, a: torch.clamp(x, min=a)),
]  # fmt: skip
SEQUENCES: list[Case] = [
    (f"ctc {reduce} {blank} {rows}", ctc(reduce, blank, zero), [draw(5, 9, 6)[rows], *(
        (np.where(LABELS[rows] == blank, 0, LABELS[rows]).astype(a.dtype) if a is LABELS else a[rows])
        for a in (LABELS, TIMES, TARGETS))],
     lambda x, t, n, m, reduce=reduce, blank=blank, zero=zero: F.ctc_loss(
         F.log_softmax(x, -1).transpose(0, 1), t, n, m, blank, reduce, zero))
    for reduce in ("mean", "sum", "none") for blank in (0, 5) for rows, zero in ((slice(4), False), (slice(5), True))
]  # fmt: skip


def split(z: Any) -> Any:
    return z.real, z.imag


TRANSFORMS: list[Case] = [
    *[
        (f"dft {shape} {axis} {inverse}", named("dft", axis=axis, inverse=inverse),
         [draw(*shape), draw(*shape, seed=1)],
         lambda x, y, axis=axis, inverse=inverse: split((torch.fft.ifft if inverse else torch.fft.fft)(
             torch.complex(x, y), dim=axis)))
        for shape, axis in [((3, 8), 1), ((7,), 0), ((4, 6, 5), 0), ((2, 9, 3), 1), ((3, 1), 1)]
        for inverse in (False, True)
    ],
    ("dft of reals", named("dft"), [draw(3, 10)], lambda x: split(torch.fft.fft(x))),
    *[(f"dft onesided {n}", named("dft", axis=1, onesided=True), [draw(3, n, 2)],
       lambda x: split(torch.fft.rfft(x, dim=1))) for n in (8, 9, 1, 2)],
    *[(f"dft onesided inverse {n} {size}", named("dft", inverse=True, onesided=True, size=size),
       [draw(3, n), draw(3, n, seed=1)], lambda x, y, size=size: torch.fft.irfft(torch.complex(x, y), n=size))
      for n, size in ((5, None), (5, 9), (5, 8), (2, 3))],
]  # fmt: skip
OTHERS: list[Case] = [
    ("weight_norm", named("weight_norm"), [draw(4, 3, 2), draw(4, 1, 1)], torch._weight_norm),
    ("weight_norm along another axis", named("weight_norm", axis=1), [draw(4, 3), draw(3)],
     lambda v, g: torch._weight_norm(v, g[None], 1)),
    ("focal", named("focal", gamma=2.0, alpha=0.25), [3 * draw(4, 6), (draw(4, 6, seed=1) > 0) * 1.0], lambda x, t: (
        F.binary_cross_entropy_with_logits(x, t, reduction="none")
        * (1 - (torch.sigmoid(x) * t + (1 - torch.sigmoid(x)) * (1 - t))) ** 2 * (0.25 * t + 0.75 * (1 - t))).mean()),
    ("dice", named("dice"), [(draw(4, 6) + 2) / 4, (draw(4, 6, seed=1) + 2) / 4], lambda p, t: (
        1 - (2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)).mean()),
]  # fmt: skip
WEIGHTS = (0.5, 2.0, 0.0, 1.0, 0.7, 1.5)
W = torch.tensor(WEIGHTS, dtype=torch.float64)
CHOSEN, SIGNS = (draw(4, 6, seed=1) > 0.5) * 1.0, np.where(draw(4, 6, seed=1) > 0, 1, -1)
IDS = np.array([[0, 4, 2], [4, 4, 4], [1, 1, 3], [3, 0, 4]], np.int32)  # row 1 is filling alone, if 4 is


def listed(t: Any) -> Any:
    """The classes with t = 1 of each row, then -1, as PyTorch's multilabel_margin_loss takes them."""
    rows = [[*[c for c in range(t.shape[1]) if row[c]], *[-1] * t.shape[1]][: t.shape[1]] for row in t]
    return torch.tensor(rows)


def of_classes(name: str, *args: Any) -> Callable[..., Any]:
    """Of targets that are bools."""
    return lambda call, x, t: call.build(name, x, call.build("cast", t, "f64"), *args)


def bag(mode: str, pad: int | None = None) -> Callable[..., Any]:
    def build(call: Any, w: Any, ids: Any, *weights: Any) -> Any:
        call.param = lambda leaf, shape, init: w
        return call.build("embedding_bag", ids, 5, 3, mode, *weights, pad=pad)

    return build


MARGINS: list[Case] = [
    *[
        (f"bce {reduce}", named("bce", reduce=reduce), [(draw(4, 6) + 2.01) / 4.02, (draw(4, 6, seed=1) + 2) / 4],
         lambda p, t, reduce=reduce: F.binary_cross_entropy(p, t, reduction=reduce))
        for reduce in ("mean", "none")
    ],
    ("soft_margin", named("soft_margin"), [3 * draw(4, 6), SIGNS], F.soft_margin_loss),
    *[
        (f"multi_margin {p} {reduce}", named("multi_margin", p, 0.8, WEIGHTS, reduce),
         [draw(4, 6), np.array([0, 5, 3, 2])],
         lambda x, t, p=p, reduce=reduce: F.multi_margin_loss(x, t, p, 0.8, W, reduction=reduce))
        for p in (1, 2) for reduce in ("mean", "sum", "none")
    ],
    *[
        (f"multilabel_margin {reduce}", of_classes("multilabel_margin", reduce), [draw(4, 6), CHOSEN > 0],
         lambda x, t, reduce=reduce: F.multilabel_margin_loss(x, listed(t), reduction=reduce))
        for reduce in ("mean", "none")
    ],
    *[
        (f"multilabel_soft_margin {reduce}", of_classes("multilabel_soft_margin", WEIGHTS, reduce),
         [3 * draw(4, 6), CHOSEN > 0],
         lambda x, t, reduce=reduce: F.multilabel_soft_margin_loss(x, t.double(), W, reduction=reduce))
        for reduce in ("mean", "none")
    ],
    *[
        (f"pairwise_distance {p}", named("pairwise_distance", p, keep=True), [draw(4, 6), draw(4, 6, seed=1)],
         lambda x, y, p=p: F.pairwise_distance(x, y, p, keepdim=True))
        for p in (1.0, 2.0, 3.0)
    ],
    *[
        (f"lp_pool {p}", named("lp_pool", p, (3, 2), (2, 1)), [np.maximum(draw(2, 3, 9, 8), 0.1)],
         lambda x, p=p: F.lp_pool2d(x, p, (3, 2), (2, 1)))
        for p in (1.0, 2.0, 2.5)
    ],
    ("channel_shuffle", named("channel_shuffle", 3), [draw(2, 6, 3, 2)], lambda x: F.channel_shuffle(x, 3)),
    ("pixel_shuffle", named("pixel_shuffle", 2), [draw(2, 8, 3, 5)], lambda x: F.pixel_shuffle(x, 2)),
    ("pixel_unshuffle", named("pixel_unshuffle", 2), [draw(2, 3, 4, 6)], lambda x: F.pixel_unshuffle(x, 2)),
    *[
        (f"embedding_bag {mode} {pad}", bag(mode, pad), [draw(5, 3), IDS],
         lambda w, i, mode=mode, pad=pad: F.embedding_bag(i, w, mode=mode, padding_idx=pad))
        for mode in ("sum", "mean", "max") for pad in (None, 4)
    ],
    ("embedding_bag with weights", bag("sum", 4), [draw(5, 3), IDS, draw(4, 3)],
     lambda w, i, s: F.embedding_bag(i, w, mode="sum", per_sample_weights=s, padding_idx=4)),
]  # fmt: skip


def test_corners() -> None:
    """The gradient of a pool is 0 where its sum is; a logarithm of bce is at least -100, without a gradient there."""
    x = np.where(np.arange(9) < 4, 0, draw(1, 2, 9))
    [y], [dx] = with_gradients(named("lp_pool", 2.0, (3,)), [x])
    np.testing.assert_allclose(y[..., 1:], F.lp_pool1d(torch.tensor(x), 2.0, 3)[..., 1:].numpy(), rtol=1e-12)
    assert not y[..., 0].any() and not dx[..., :3].any() and dx[..., 4:].all()
    p, t = np.array([0.0, 1.0, 0.0, 1.0, 1e-60]), np.array([0.0, 1.0, 0.25, 0.0, 1.0])
    [y], [dp, _] = with_gradients(named("bce", reduce="none"), [p, t])
    theirs = F.binary_cross_entropy(torch.tensor(p), torch.tensor(t), reduction="none")
    np.testing.assert_allclose(y, theirs.numpy(), rtol=1e-12)
    assert np.isfinite(dp).all() and dp[4] == 0


def definite(*shape: int) -> np.ndarray:
    x = draw(*shape)
    return np.asarray(x @ x.swapaxes(-1, -2) + np.eye(shape[-1]))


ALGEBRA: list[Case] = [
    ("cholesky", named("cholesky"), [definite(3, 4, 4)], lambda x: torch.linalg.cholesky(x)),
    ("solve", named("solve"), [draw(3, 4, 4), draw(3, 4)], lambda a, b: torch.linalg.solve(a, b)),
    ("solve of matrices", named("solve"), [draw(5, 5), draw(2, 5, 3)], lambda a, b: torch.linalg.solve(a, b)),
    ("inverse", named("inverse"), [draw(2, 6, 6)], lambda x: torch.linalg.inv(x)),
    ("det", named("det"), [draw(3, 2, 5, 5)], lambda x: torch.linalg.det(x)),
    ("slogdet", named("slogdet"), [draw(3, 2, 5, 5)], lambda x: torch.linalg.slogdet(x)),
    *(
        (
            f"triangular_solve {upper} {unit}", named("triangular_solve", upper=upper, unit=unit),
            [definite(2, 4, 4), draw(2, 4, 3)],
            lambda t, b, upper=upper, unit=unit: torch.linalg.solve_triangular(t, b, upper=upper, unitriangular=unit),
        )
        for upper in (False, True) for unit in (False, True)
    ),
]  # fmt: skip
CASES: list[Case] = [*OTHERS, *MARGINS, *LIMITS, *TRANSFORMS, *SEQUENCES, *POOLS, *WINDOWS, *DISTANCES, *ALGEBRA]


@pytest.mark.parametrize(("build", "xs", "theirs"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_values_and_gradients(build: Callable[..., Any], xs: list[np.ndarray], theirs: Callable[..., Any]) -> None:
    values, gradients = with_gradients(build, xs)
    tensors = [torch.tensor(x, requires_grad=x.dtype == np.float64) for x in xs]
    found = theirs(*tensors)
    expected = list(found) if isinstance(found, (tuple, list)) else [found]
    loss: Any = 0
    for ours, other in zip(values, expected, strict=True):
        np.testing.assert_allclose(ours, other.detach().numpy(), rtol=1e-9, atol=1e-11)
        if other.is_floating_point():
            loss = loss + (other * torch.tensor(weights_of(ours.shape))).sum()
    loss.backward()
    leaves = [t for t in tensors if t.requires_grad]
    for ours, leaf in zip(gradients, leaves, strict=True):
        np.testing.assert_allclose(ours, leaf.grad.numpy(), rtol=1e-9, atol=1e-11)
