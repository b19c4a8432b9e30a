"""The ops of networks against PyTorch in f64: values and gradients, optimizers over twenty steps, initialisers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from op_laws.evaluation import apply, run, values_of
from op_laws.optimizer_steps import trained
from op_laws.recorder import Recorder, compute, gradients

from dslc.compiler.ir.graph import Graph, Phase
from dslc.compiler.ir.op import Builder, Mismatch
from dslc.compiler.ir.pull_back import pull_back
from dslc.compiler.ir.types import DType
from dslc.compiler.ops import registry
from dslc.compiler.ops.optimizer.clip_norm import clip_by_global_norm
from dslc.compiler.ops.random.init import initialiser, resolve
from dslc.compiler.passes.lower.gradient.differentiate import differentiate
from dslc.compiler.passes.lower.gradient.sum_gradients import total

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional
OPS = registry.ops()


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).uniform(-2, 2, shape)


def classes(*shape: int, most: int) -> np.ndarray:
    return np.random.default_rng([9, *shape]).integers(0, most, shape)


def shares(*shape: int) -> np.ndarray:
    """Probabilities along axis 1."""
    found = np.exp(draw(*shape, seed=3))
    return np.asarray(found / found.sum(1, keepdims=True))


def signs(*shape: int) -> np.ndarray:
    return np.asarray(2 * classes(*shape, most=2) - 1)


def geometry(axes: int, stride: int = 1, pad: int = 0, dilation: int = 1, groups: int = 1) -> dict[str, Any]:
    return {"stride": (stride,) * axes, "pad": (pad,) * axes, "dilation": (dilation,) * axes, "groups": groups}


def pool(axes: int, k: int, stride: int, pad: int) -> dict[str, Any]:
    return {"k": (k,) * axes, "stride": (stride,) * axes, "pad": (pad,) * axes}


CASES: list[tuple[str, list[np.ndarray], dict[str, Any], Callable[..., Any]]] = [
    ("conv", [draw(2, 4, 9, 8), draw(6, 2, 3, 3)], geometry(2, 2, 1, 2, 2),
     lambda x, w: F.conv2d(x, w, stride=2, padding=1, dilation=2, groups=2)),
    ("conv", [draw(2, 3, 11), draw(4, 3, 4)], geometry(1, 3, 2), lambda x, w: F.conv1d(x, w, stride=3, padding=2)),
    ("conv", [draw(1, 2, 4, 5, 6), draw(3, 2, 2, 2, 2)], geometry(3), lambda x, w: F.conv3d(x, w)),
    ("conv_dgrad", [draw(2, 4, 5, 4), draw(4, 3, 3, 3)], geometry(2, 2, 1, 1, 2) | {"size": (10, 8)},
     lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, groups=2)),
    ("maxpool", [draw(2, 3, 9, 8)], pool(2, 3, 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1)),
    ("maxpool", [np.round(draw(2, 3, 8, 8))], pool(2, 2, 2, 0), lambda x: F.max_pool2d(x, 2)),
    ("maxpool", [np.round(draw(2, 3, 8, 8, seed=1))], pool(2, 3, 1, 1), lambda x: F.max_pool2d(x, 3, 1, 1)),
    ("avgpool", [draw(2, 3, 9, 8)], pool(2, 3, 2, 1), lambda x: F.avg_pool2d(x, 3, 2, 1)),
    ("layernorm", [draw(2, 3, 5), draw(5), draw(5, seed=1)], {"axis": 2, "eps": 1e-5},
     lambda x, w, b: F.layer_norm(x, (5,), w, b, 1e-5)),
    ("rmsnorm", [draw(2, 3, 5), draw(5)], {"axis": 2, "eps": 1e-6}, lambda x, w: F.rms_norm(x, (5,), w, 1e-6)),
    ("groupnorm", [draw(2, 6, 3, 4), draw(6), draw(6, seed=1)], {"groups": 3, "eps": 1e-5},
     lambda x, w, b: F.group_norm(x, 3, w, b, 1e-5)),
    ("sdpa", [draw(2, 3, 5, 4), draw(2, 3, 5, 4, seed=1), draw(2, 3, 5, 2)], {"causal": True, "scale": 0.5},
     lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
    ("sdpa", [draw(2, 5, 4), draw(2, 6, 4), draw(2, 6, 3), draw(5, 6) < 1.5], {"causal": False, "scale": 0.3},
     lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3)),
    ("softmax_cross_entropy", [draw(3, 5, 2), classes(3, 2, most=5)], {"axis": 1, "smoothing": 0.1, "ignore_index": 2},
     lambda x, t: F.cross_entropy(x, t, reduction="none", label_smoothing=0.1, ignore_index=2)),
    ("softmax_cross_entropy", [draw(4, 6), classes(4, most=6)], {"axis": 1, "smoothing": 0.0},
     lambda x, t: F.cross_entropy(x, t, reduction="none")),
    ("nll", [draw(4, 6), classes(4, most=6)], {"axis": 1}, lambda x, t: F.nll_loss(x, t, reduction="none")),
    ("bce_with_logits", [draw(4, 6), (draw(4, 6, seed=1) + 2) / 4], {},
     lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="none")),
    ("hardswish", [3 * draw(4, 6)], {}, F.hardswish),
    *[
        (name, [scale * draw(4, 6)], attrs, theirs)
        for name, scale, attrs, theirs in [
            ("mish", 3, {}, F.mish), ("softsign", 1, {}, F.softsign), ("logsigmoid", 9, {}, F.logsigmoid),
            ("celu", 2, {"alpha": 0.5}, lambda x: F.celu(x, 0.5)),
            ("hardtanh", 1, {"low": -1.0, "high": 0.5}, lambda x: F.hardtanh(x, -1.0, 0.5)),
            ("hardtanh", 5, {"low": 0.0, "high": 6.0}, F.relu6), ("hardshrink", 1, {"lambd": 0.5}, F.hardshrink),
            ("softshrink", 1, {"lambd": 0.7}, lambda x: F.softshrink(x, 0.7)),
            ("threshold", 1, {"threshold": 0.1, "value": 7.0}, lambda x: F.threshold(x, 0.1, 7.0)),
            ("asin", 0.5, {}, torch.asin), ("acos", 0.5, {}, torch.acos), ("atan", 5, {}, torch.atan),
            ("tan", 0.7, {}, torch.tan), ("sinh", 1, {}, torch.sinh), ("cosh", 1, {}, torch.cosh),
            ("asinh", 9, {}, torch.asinh), ("atanh", 0.5, {}, torch.atanh), ("exp2", 3, {}, torch.exp2),
            ("erfc", 2, {}, torch.erfc), ("frac", 3, {}, torch.frac),
        ]
    ],
    *[(name, [np.abs(draw(4, 6)) + 1.01], {}, getattr(torch, name)) for name in ("acosh", "log2", "log10")],
    *[(name, [draw(4, 6), draw(4, 6, seed=1)], {}, getattr(torch, name)) for name in ("atan2", "fmod")],
    ("lgamma", [5 * draw(4, 6)], {}, torch.lgamma), ("polygamma", [3 * draw(4, 6)], {"n": 0}, torch.digamma),
    *[("polygamma", [np.abs(5 * draw(4, 6)) + 0.1], {"n": n}, lambda x, n=n: torch.polygamma(n, x)) for n in (1, 2)],
    ("nan_to_num", [np.array([1.5, np.nan, np.inf, -np.inf])], {"nan": 0.5, "posinf": 7.0, "neginf": -9.0},
     lambda x: torch.nan_to_num(x, 0.5, 7.0, -9.0)),
    ("prod", [draw(4, 3)], {"over": (1,), "keep": False}, lambda x: x.prod(1)),
    ("cumprod", [draw(4, 3)], {"axis": 1, "reverse": False}, lambda x: x.cumprod(1)),
    ("cumprod", [np.round(draw(6, 5, seed=4))], {"axis": 1, "reverse": False}, lambda x: x.cumprod(1)),
    ("cumsum", [draw(4, 3)], {"axis": 1, "reverse": False}, lambda x: x.cumsum(1)),
    ("norm", [draw(4, 3, 2)], {"over": (0, 2), "keep": False, "p": 2.0}, lambda x: x.norm(2, (0, 2))),
    ("norm", [draw(4, 3)], {"over": (1,), "keep": True, "p": 3.0}, lambda x: x.norm(3, 1, keepdim=True)),
    ("norm", [np.zeros((2, 3))], {"over": (1,), "keep": False, "p": 2.0}, lambda x: x.norm(2, 1)),
    ("topk", [draw(4, 9)], {"axis": 1, "k": 3, "largest": True}, lambda x: x.topk(3, 1).values),
    ("topk", [draw(4, 9)], {"axis": 0, "k": 2, "largest": False}, lambda x: x.topk(2, 0, largest=False).values),
    ("gather", [draw(4, 9), classes(4, 5, most=9)], {"axis": 1}, lambda x, i: x.gather(1, i)),
    *(("scatter_reduce", [draw(4, 3), draw(4, 5), classes(4, 5, most=3)], {"axis": 1, "how": how},
       lambda x, s, i, name=name: x.scatter_reduce(1, i, s, name))
      for how, name in (("prod", "prod"), ("max", "amax"), ("min", "amin"))),
    ("sort", [draw(4, 9)], {"axis": 1, "descending": False}, lambda x: x.sort(dim=1, stable=True).values),
    ("sort", [np.round(draw(40, 3))], {"axis": 0, "descending": True},
     lambda x: x.sort(dim=0, descending=True, stable=True).values),
    ("roll", [draw(4, 5, 3)], {"shifts": (0, -8, 2)}, lambda x: x.roll((-8, 2), (1, 2))),
    ("take", [draw(4, 5, 3), classes(2, 6, most=5)], {"axis": 1}, lambda x, i: x[:, i]),
    ("scatter_add", [draw(4, 5), classes(4, 5, most=3)], {"axis": 1, "count": 3},
     lambda x, i: torch.zeros(4, 3, dtype=torch.float64).scatter_add(1, i, x)),
    *[
        ("interpolate", [draw(*shape)], {"size": size, "mode": "linear" if mode.endswith("linear") else mode},
         lambda x, size=size, mode=mode: F.interpolate(x, size, mode=mode))
        for shape, size, mode in [
            ((2, 3, 4, 5), (8, 10), "nearest"), ((2, 3, 4, 5), (6, 3), "nearest"), ((2, 3, 4, 5), (8, 10), "bilinear"),
            ((2, 3, 7, 5), (3, 9), "bilinear"), ((2, 3, 5), (9,), "linear"), ((1, 2, 3, 4, 2), (5, 3, 4), "trilinear"),
        ]
    ],
    ("adaptive_avgpool", [draw(2, 3, 7, 5)], {"size": (3, 4)}, lambda x: F.adaptive_avg_pool2d(x, (3, 4))),
    ("adaptive_maxpool", [draw(2, 3, 7, 5)], {"size": (3, 4)}, lambda x: F.adaptive_max_pool2d(x, (3, 4))),
    ("adaptive_maxpool", [draw(2, 3, 11)], {"size": (4,)}, lambda x: F.adaptive_max_pool1d(x, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "xs", "attrs", "theirs"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_values_and_gradients(
    name: str, xs: list[np.ndarray], attrs: dict[str, Any], theirs: Callable[..., Any]
) -> None:
    tensors = [torch.tensor(x, requires_grad=x.dtype == np.float64) for x in xs]
    y = theirs(*tensors)
    got, *rest = apply(OPS[name], xs, attrs)
    np.testing.assert_allclose(got, y.detach().numpy(), rtol=1e-12, atol=1e-12)
    dy = draw(*got.shape, seed=5)
    y.backward(torch.tensor(dy))
    node = Builder().node(OPS[name], *values_of(xs), **attrs)
    [weight] = values_of([dy], "dy")
    found = OPS[name].grad(node, [weight, *(None for _ in rest)], Builder())
    wanted = [(g, t.grad.numpy()) for g, t in zip(found, tensors) if t.requires_grad]
    assert wanted
    feeds = dict(zip((*node.inputs, *node.outputs, weight), (*xs, got, *rest, dy)))
    for ours, expected in zip(run([g for g, _ in wanted if g is not None], feeds), [e for _, e in wanted], strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("name", "xs", "attrs", "theirs"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_gradients_of_gradients(
    name: str, xs: list[np.ndarray], attrs: dict[str, Any], theirs: Callable[..., Any]
) -> None:
    """With respect to the inputs and the first gradient, of a weighted sum of the gradients of all inputs."""
    if attrs.get("how") == "prod":
        return  # refused
    tensors = [torch.tensor(x, requires_grad=x.dtype == np.float64) for x in xs]
    floats = [t for t in tensors if t.requires_grad]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        y = theirs(*tensors)
    dy = torch.tensor(draw(*y.shape, seed=5), requires_grad=True)
    first = torch.autograd.grad(y, floats, dy, create_graph=True)
    weights = [draw(*g.shape, seed=6) for g in first]
    whole = sum((g * torch.tensor(w)).sum() for g, w in zip(first, weights))
    expected = torch.autograd.grad(whole, [*floats, dy], allow_unused=True, materialize_grads=True)

    node = Builder().node(OPS[name], *values_of(xs), **attrs)
    wanted = [v for v in node.inputs if v.type.dtype is DType.F64]
    seed, *scales = values_of([dy.detach().numpy(), *weights], "dy")
    terms = {node.outputs[0]: [seed]}
    pull_back([node], terms, set(wanted), total, Phase.GRADIENT)
    b = Builder()
    sums = [b(OPS["sum"], b(OPS["mul"], total(terms[v]), scale), over=tuple(range(v.type.rank)), keep=False)
            for v, scale in zip(wanted, scales) if v in terms]  # fmt: skip
    assert sums
    found = differentiate(Graph((), (), {}), total(sums), [*wanted, seed])
    feeds = dict(zip((*node.inputs, seed, *scales), (*xs, dy.detach().numpy(), *weights)))
    for v, e in zip((*wanted, seed), expected):
        ours = run([found[v]], feeds)[0] if v in found else np.zeros(v.type.ints)
        exists = ~np.isnan(e.numpy())  # PyTorch's of a norm is nan at 0
        np.testing.assert_allclose(ours[exists], e.numpy()[exists], rtol=1e-9, atol=1e-9)


CORNERS: list[dict[str, Any]] = [{"align_corners": corners} for corners in (False, True)]
SMOOTH = [{**corners, **antialias} for corners in CORNERS for antialias in ({}, {"antialias": True})]

COMPOSED: list[tuple[str, list[np.ndarray], dict[str, Any], Callable[..., Any]]] = [
    *[
        ("cross_entropy", [draw(6, 4, 5), classes(6, 5, most=4)],
         {"axis": 1, "weight": (0.5, 2.0, 0.0, 1.0), "smoothing": smoothing, "ignore_index": ignore},
         lambda x, t, smoothing=smoothing, ignore=ignore: F.cross_entropy(
             x, t, torch.tensor([0.5, 2.0, 0.0, 1.0], dtype=torch.float64), label_smoothing=smoothing,
             ignore_index=-100 if ignore is None else ignore))
        for smoothing in (0.0, 0.2) for ignore in (None, 1)
    ],
    ("nll", [draw(6, 4), classes(6, most=4)], {"weight": (0.5, 2.0, 0.1, 1.0)},
     lambda x, t: F.nll_loss(x, t, torch.tensor([0.5, 2.0, 0.1, 1.0], dtype=torch.float64))),
    ("cosine_similarity", [draw(6, 4), draw(6, 4, seed=1)], {"axis": 1}, lambda x, y: F.cosine_similarity(x, y)),
    ("instancenorm", [draw(2, 3, 4, 5)], {}, F.instance_norm),
    *[
        ("cross_entropy", [draw(6, 4, 5), shares(6, 4, 5)],
         {"axis": 1, "smoothing": smoothing} | ({"weight": (0.5, 2.0, 0.0, 1.0)} if weighted else {}),
         lambda x, t, smoothing=smoothing, weighted=weighted: F.cross_entropy(
             x, t, torch.tensor([0.5, 2.0, 0.0, 1.0], dtype=torch.float64) if weighted else None,
             label_smoothing=smoothing))
        for smoothing in (0.0, 0.2) for weighted in (False, True)
    ],
    ("bce_with_logits", [9 * draw(4, 3), (draw(4, 3, seed=1) + 2) / 4], {"pos_weight": (0.5, 3.0, 1.0)},
     lambda x, t: F.binary_cross_entropy_with_logits(x, t, pos_weight=torch.tensor([0.5, 3.0, 1.0]))),
    ("smooth_l1", [draw(4, 6), draw(4, 6, seed=1)], {"beta": 0.7}, lambda x, t: F.smooth_l1_loss(x, t, beta=0.7)),
    ("gaussian_nll", [draw(4, 6), draw(4, 6, seed=1), np.abs(draw(4, 6, seed=2))], {"full": True},
     lambda x, t, v: F.gaussian_nll_loss(x, t, v, full=True)),
    ("poisson_nll", [draw(4, 6), np.abs(3 * draw(4, 6, seed=1))], {"full": True},
     lambda x, t: F.poisson_nll_loss(x, t, full=True)),
    ("poisson_nll", [np.abs(draw(4, 6)), np.abs(3 * draw(4, 6, seed=1))], {"log_input": False},
     lambda x, t: F.poisson_nll_loss(x, t, log_input=False)),
    ("hinge_embedding", [np.abs(draw(4, 6)), signs(4, 6)], {"margin": 1.5},
     lambda x, t: F.hinge_embedding_loss(x, t, margin=1.5)),
    ("margin_ranking", [draw(9), draw(9, seed=1), signs(9)], {"margin": 0.4},
     lambda x, y, t: F.margin_ranking_loss(x, y, t, margin=0.4)),
    ("triplet_margin", [draw(4, 6), draw(4, 6, seed=1), draw(4, 6, seed=2)], {"margin": 0.8, "p": 3.0},
     lambda a, p, n: F.triplet_margin_loss(a, p, n, margin=0.8, p=3.0)),
    ("cosine_embedding", [draw(9, 6), draw(9, 6, seed=1), signs(9)], {"margin": 0.1},
     lambda x, y, t: F.cosine_embedding_loss(x, y, t, margin=0.1)),
    ("hinge", [draw(4, 6), signs(4, 6)], {}, lambda x, t: (1 - t * x).clamp(min=0).mean()),
    ("dice", [shares(4, 6), shares(4, 6)], {}, lambda p, t: (
        1 - (2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)).mean()),
    ("focal", [3 * draw(4, 6), (draw(4, 6, seed=1) > 0) * 1.0], {"gamma": 1.5, "alpha": 0.3}, lambda x, t: (
        F.binary_cross_entropy_with_logits(x, t, reduction="none")
        * (1 - torch.where(t > 0, torch.sigmoid(x), torch.sigmoid(-x))) ** 1.5 * (0.7 - 0.4 * t)).mean()),
    *[
        ("interpolate", [draw(2, 3, *shape)], {"mode": mode} | ours | named,
         lambda x, mode=mode, named=named, theirs=theirs: F.interpolate(x, mode=mode, **theirs, **named))
        for shape, mode, ways in [
            ((7,), "linear", CORNERS), ((7, 5), "bilinear", SMOOTH), ((7, 5), "bicubic", SMOOTH),
            ((3, 4, 2), "trilinear", CORNERS), ((7, 5), "nearest-exact", [{}]), ((7, 5), "area", [{}]),
            ((1, 2), "bicubic", SMOOTH), ((2, 9), "bilinear", SMOOTH), ((7, 5), "nearest", [{}]),
        ]
        for named in ways
        for ours, theirs in [
            ({"size": size}, {"size": size}) for size in [(9, 3, 4)[: len(shape)], (1, 12, 2)[: len(shape)]]
        ] + [({"scale": by}, {"scale_factor": by}) for by in [(1.7, 2.5, 0.75)[: len(shape)]]]
    ],
    ("layernorm", [draw(4, 3, 5)], {"axis": (1, 2), "affine": False}, lambda x: F.layer_norm(x, (3, 5))),
    ("rmsnorm", [draw(4, 3, 5)], {"axis": (1, 2), "affine": False, "eps": 1e-3},
     lambda x: F.rms_norm(x, (3, 5), eps=1e-3)),
    ("groupnorm", [draw(4, 6, 5)], {"groups": 2, "affine": False}, lambda x: F.group_norm(x, 2)),
    *[("local_response_norm", [draw(2, 7, *space)], {"size": size, "alpha": 0.3, "beta": 0.6, "k": 1.5},
       lambda x, size=size: F.local_response_norm(x, size, 0.3, 0.6, 1.5))
      for size, space in ((5, (3, 4)), (4, (3,)), (1, (2, 2)), (9, (2, 3, 2)))],
    ("std", [draw(4, 6)], {"over": (1,), "correction": 1}, lambda x: x.std(1)),
    ("std", [draw(4, 6)], {}, lambda x: x.std(correction=0)),
    ("any", [draw(4, 6) > 1.5], {"over": (1,)}, lambda x: x.any(1)),
    ("all", [draw(4, 6) > -1.5], {"over": (1,), "keep": True}, lambda x: x.all(1, keepdim=True)),
    ("any", [np.zeros((0,), bool)], {}, lambda x: x.any()),
    ("all", [np.zeros((0,), bool)], {}, lambda x: x.all()),
    ("cumprod", [draw(4, 6)], {"axis": 1, "exclusive": True}, lambda x: F.pad(x[:, :5].cumprod(1), (1, 0), value=1.0)),
    *[("logcumsumexp", [draw(4, 6)], {"axis": axis}, lambda x, axis=axis: x.logcumsumexp(axis)) for axis in (0, 1)],
    *[("cumsum", [draw(4, 6)], {"axis": axis, "reverse": reverse, "exclusive": True},
       lambda x, axis=axis, reverse=reverse: (x.flip(axis).cumsum(axis).flip(axis) if reverse else x.cumsum(axis)) - x)
      for axis in (0, 1) for reverse in (False, True)],
    ("selu", [draw(4, 6)], {}, F.selu),
    ("hardsigmoid", [3 * draw(4, 6)], {}, F.hardsigmoid),  # its slope is the f32 nearest to 1/6 there
    ("relu6", [5 * draw(4, 6)], {}, F.relu6),
    ("tanhshrink", [draw(4, 6)], {}, F.tanhshrink),
    ("glu", [draw(4, 6)], {}, F.glu),
    ("glu", [draw(4, 6)], {"axis": 0}, lambda x: F.glu(x, 0)),
    ("reciprocal", [draw(4, 6)], {}, torch.reciprocal),
    ("square", [draw(4, 6)], {}, torch.square),
    *[(name, [3 * draw(4, 6)], {}, getattr(torch, name)) for name in ("ceil", "trunc", "isnan", "isinf", "isfinite")],
    ("tril", [draw(2, 4, 5)], {"diagonal": 1}, lambda x: torch.tril(x, 1)),
    ("triu", [draw(2, 4, 5)], {"diagonal": -1}, lambda x: torch.triu(x, -1)),
    ("flip", [draw(2, 4, 5)], {"over": (0, 2)}, lambda x: x.flip(0, 2)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "xs", "named", "theirs"), COMPOSED, ids=[f"{i}-{c[0]}" for i, c in enumerate(COMPOSED)]
)
def test_composed_functions(name: str, xs: list[np.ndarray], named: dict[str, Any], theirs: Callable[..., Any]) -> None:
    expected = theirs(*map(torch.tensor, xs)).numpy()
    np.testing.assert_allclose(compute(name, xs, **named), expected, rtol=1e-11, atol=1e-12)


SAMPLED: list[tuple[str, list[np.ndarray], dict[str, Any], Callable[..., Any]]] = [
    *[
        ("grid_sample", [draw(2, 3, *space), draw(2, *places, len(space), seed=1)],
         {"mode": mode, "padding_mode": padding, "align_corners": corners},
         lambda x, grid, how=(mode, padding, corners): F.grid_sample(x, grid, *how))
        for space, places in [((4, 5), (3, 6)), ((1, 2), (2, 2)), ((3, 2, 4), (2, 1, 3))]
        for mode in ("nearest", "bilinear", "bicubic")[: 3 if len(space) == 2 else 2]
        for padding in ("zeros", "border", "reflection")
        for corners in (False, True)
    ],
    *[
        ("affine_grid", [draw(2, len(size), len(size) + 1)], {"size": size, "align_corners": corners},
         lambda theta, size=size, corners=corners: F.affine_grid(theta, (2, 1, *size), align_corners=corners))
        for size in [(4, 5), (2, 3), (2, 3, 4)] for corners in (False, True)
    ],
    *[
        ("interpolate", [draw(2, 3, 7, 5)], {"mode": mode, "size": size} | named,
         lambda x, mode=mode, size=size, named=named: F.interpolate(x, size, mode=mode, **named))
        for size in [(9, 3), (2, 12)] for mode in ("bilinear", "bicubic") for named in SMOOTH
    ],
]  # fmt: skip


@pytest.mark.parametrize(("name", "xs", "named", "theirs"), SAMPLED, ids=[f"{i}-{c[0]}" for i, c in enumerate(SAMPLED)])
def test_gradients_of_sampled_images(
    name: str, xs: list[np.ndarray], named: dict[str, Any], theirs: Callable[..., Any]
) -> None:
    tensors = [torch.tensor(x, requires_grad=True) for x in xs]
    expected = theirs(*tensors)
    dy = draw(*expected.shape, seed=5)
    expected.backward(torch.tensor(dy))
    y, found = gradients(name, xs, dy, **named)
    np.testing.assert_allclose(y, expected.detach().numpy(), rtol=1e-11, atol=1e-12)
    for ours, tensor in zip(found, tensors, strict=True):
        np.testing.assert_allclose(0 if ours is None else ours, tensor.grad.numpy(), rtol=1e-10, atol=1e-11)


DETECTED = [(size, ratio, aligned) for size in ((3, 2), (1, 5)) for ratio in (1, 3) for aligned in (False, True)]


@pytest.mark.parametrize(("size", "ratio", "aligned"), DETECTED)
def test_roi_align(size: tuple[int, int], ratio: int, aligned: bool) -> None:
    vision = pytest.importorskip("torchvision", reason="torchvision is not installed")
    x, boxes, image = draw(3, 2, 9, 7), 8 * draw(6, 4) + 4, classes(6, most=3).astype("i4")
    tensor = torch.tensor(x, requires_grad=True)
    rois = torch.cat([torch.tensor(image)[:, None].double(), torch.tensor(boxes)], 1)
    expected = vision.ops.roi_align(tensor, rois, size, 0.5, ratio, aligned)
    dy = draw(*expected.shape, seed=5)
    expected.backward(torch.tensor(dy))
    named = {"size": size, "scale": 0.5, "sampling_ratio": ratio, "aligned": aligned}
    y, [dx, *_] = gradients("roi_align", [x, boxes, image], dy, **named)
    np.testing.assert_allclose(y, expected.detach().numpy(), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(dx, tensor.grad.numpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
def test_nms(threshold: float) -> None:
    vision = pytest.importorskip("torchvision", reason="torchvision is not installed")
    corners = draw(80, 2, 2, seed=2)
    boxes, scores = np.concatenate([corners.min(1), corners.max(1)], 1), draw(80)
    expected = vision.ops.nms(torch.tensor(boxes), torch.tensor(scores), threshold).numpy()
    values, call = values_of([boxes, scores]), Recorder(DType.F64)
    index, keep = run(call.build("nms", *values, threshold), dict(zip(values, (boxes, scores))))
    np.testing.assert_array_equal(index, [*expected, *[-1] * (80 - len(expected))])
    np.testing.assert_array_equal(np.flatnonzero(keep), np.sort(expected))


@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 4, 5)])
def test_batchnorm_in_training_and_eval(shape: tuple[int, ...]) -> None:
    x, dy = draw(*shape), draw(*shape, seed=1)
    theirs = torch.nn.BatchNorm1d(3, dtype=torch.float64) if len(shape) == 2 else torch.nn.BatchNorm2d(
        3, dtype=torch.float64
    )  # fmt: skip
    weight, bias, mean, var = draw(3), draw(3, seed=1), draw(3, seed=2), np.abs(draw(3, seed=3)) + 0.5
    for name, value in (("weight", weight), ("bias", bias), ("running_mean", mean), ("running_var", var)):
        with torch.no_grad():
            getattr(theirs, name).copy_(torch.tensor(value))
    tensor = torch.tensor(x, requires_grad=True)
    xs = [x, weight, bias, mean, var]
    op = OPS["batchnorm"]
    node = Builder().node(op, *values_of(xs), eps=1e-5, momentum=0.1)
    feeds = dict(zip(node.inputs, xs))
    in_eval = op.in_eval(node, Builder())
    assert in_eval is not None
    with torch.no_grad():
        expected = theirs.eval()(tensor).numpy()
    np.testing.assert_allclose(run([in_eval[0]], feeds)[0], expected, rtol=1e-12, atol=1e-12)
    y = theirs.train()(tensor)
    got = apply(op, xs, node.attrs)
    for ours, expected in zip(got, (y, theirs.running_mean, theirs.running_var)):
        np.testing.assert_allclose(ours, expected.detach().numpy(), rtol=1e-12, atol=1e-12)
    y.backward(torch.tensor(dy))
    [weight_value] = values_of([dy], "dy")
    found = op.grad(node, [weight_value, None, None, None, None], Builder())
    gradients = run([g for g in found if g is not None], feeds | dict(zip(node.outputs, got)) | {weight_value: dy})
    for ours, expected in zip(gradients, (tensor.grad, theirs.weight.grad, theirs.bias.grad), strict=True):
        np.testing.assert_allclose(ours, expected.numpy(), rtol=1e-10, atol=1e-12)


def test_spectral_norm_follows_the_greatest_singular_value() -> None:
    """One step of power iteration from the same u, and the gradient with fixed singular vectors."""
    w = torch.tensor(draw(5, 3, 2), requires_grad=True)
    u = torch.tensor(draw(5))
    v = F.normalize(w.detach().reshape(5, 6).T @ u, dim=0, eps=1e-12)
    u_new = F.normalize(w.detach().reshape(5, 6) @ v, dim=0, eps=1e-12)
    theirs = w / (u_new @ (w.reshape(5, 6) @ v))
    ours = compute("spectral_norm", [w.detach().numpy()], {"u": u.numpy()})
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-12)
    call, [value] = Recorder(DType.F64), values_of([draw(5, 3, 2)])
    y = call.build("spectral_norm", value)
    assert list(call.inits) == ["u"] and call.updates.keys() == {call.leaves["u"]}
    found = run([call.updates[call.leaves["u"]], y], {value: w.detach().numpy(), call.leaves["u"]: u.numpy()})
    np.testing.assert_allclose(found[0], u_new.numpy(), rtol=1e-12)


STEPPERS: list[tuple[str, dict[str, Any], str]] = [
    ("sgd", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, "SGD"),
    ("sgd", {"lr": 0.1}, "SGD"),
    ("adam", {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.9)}, "Adam"),
    ("adamw", {"lr": 0.01, "weight_decay": 0.01}, "AdamW"),
    ("rmsprop", {"lr": 0.01, "weight_decay": 0.1, "momentum": 0.9, "alpha": 0.9}, "RMSprop"),
    ("rmsprop", {"lr": 0.01}, "RMSprop"),
    ("rmsprop", {"lr": 0.01, "alpha": 0.9, "centered": True}, "RMSprop"),
    ("rmsprop", {"lr": 0.01, "alpha": 0.5, "centered": True, "momentum": 0.9, "eps": 1e-3}, "RMSprop"),
]


@pytest.mark.parametrize(("name", "named", "theirs"), STEPPERS, ids=[f"{i}-{s[0]}" for i, s in enumerate(STEPPERS)])
def test_optimizers(name: str, named: dict[str, Any], theirs: str) -> None:
    rng = np.random.default_rng(1)
    p = torch.tensor(rng.uniform(-1, 1, (3, 4)), requires_grad=True)
    optimizer = getattr(torch.optim, theirs)([p], **named)
    for step, ours in enumerate(trained(name, named)):
        p.grad = 0.3 * p.detach() + torch.tensor(rng.uniform(-1, 1, (3, 4)))
        optimizer.param_groups[0]["lr"] = named["lr"] / (1 + step)
        optimizer.step()
        np.testing.assert_allclose(ours, p.detach().numpy(), rtol=1e-12, atol=1e-12)


def test_clipping() -> None:
    grads = [draw(3, 4), draw(5)]
    values = values_of(grads)
    ours = run(clip_by_global_norm(Builder(), values, 0.7), dict(zip(values, grads)))
    tensors = [torch.zeros(g.shape, dtype=torch.float64) for g in grads]
    for t, g in zip(tensors, grads):
        t.grad = torch.tensor(g)
    torch.nn.utils.clip_grad_norm_(tensors, 0.7)
    for y, t in zip(ours, tensors):
        np.testing.assert_allclose(y, t.grad.numpy(), rtol=1e-12)


def test_spread_of_initialisers() -> None:
    shape = (200, 60, 3, 3)
    for name in ("xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal"):
        torch.manual_seed(0)
        theirs = getattr(torch.nn.init, f"{name}_")(torch.empty(shape)).numpy()
        ours = resolve(initialiser(name), shape)
        std = ours.args[1] / (3**0.5 if ours.kind == "uniform" else 1)
        assert theirs.std() == pytest.approx(std, rel=0.01)


def _accepted(call: Callable[[], Any]) -> Any:
    """The result's numbers; None where the arguments are refused."""
    try:
        found = call()
    except (Mismatch, RuntimeError):
        return None
    return found.numpy() if isinstance(found, torch.Tensor) else found


WINDOWS: dict[str, list[str]] = {
    "conv": ["stride", "pad", "dilation"],
    "conv_transpose": ["stride", "pad", "dilation", "output_pad"],
    "maxpool": ["stride", "pad"],
    "avgpool": ["stride", "pad"],
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_taken_and_refused_as_by_torch(name: str) -> None:
    """Every small geometry along one axis: the same are refused, and the others have the same numbers."""
    theirs: dict[str, Callable[..., Any]] = {
        "conv": lambda x, w, k, s, p, d: F.conv1d(x, w, None, s, p, d),
        "conv_transpose": lambda x, w, k, s, p, d, e: F.conv_transpose1d(x, w, None, s, p, e, 1, d),
        "maxpool": lambda x, w, k, s, p: F.max_pool1d(x, k, s, p),
        "avgpool": lambda x, w, k, s, p: F.avg_pool1d(x, k, s, p),
    }
    taken = refused = 0
    learnt = name.startswith("conv")
    for n, k in product((1, 2, 5), (1, 2, 3)):
        x, w = draw(2, 3, n), draw(3, 3, k)
        for numbers in product(*(range(3 if name == "conv_transpose" else 4) for _ in WINDOWS[name])):
            given: dict[str, Any] = {a: (v,) for a, v in zip(WINDOWS[name], numbers)} | {"k": (k,)}
            given |= {"out": 3, "bias": False} if learnt else {}
            leaves = {"weight": w} if learnt else None
            tensors = torch.tensor(x), torch.tensor(w)
            expected = _accepted(lambda: theirs[name](*tensors, k, *numbers))  # noqa: B023
            found = _accepted(lambda: compute(name, [x], leaves, **given))  # noqa: B023
            assert (found is None) == (expected is None), f"n={n} {given}"
            if expected is None:
                refused += 1
            else:
                taken += 1
                np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13, err_msg=f"n={n} {given}")
    assert taken > 20 and refused > 20


@pytest.mark.parametrize("count", [1, 2, 3, 8, 201])
@pytest.mark.parametrize(("start", "stop"), [(0.0, 1.0), (-2.5, 7.25), (3.0, -0.1), (5.0, 5.0)])
def test_equally_spaced_numbers(start: float, stop: float, count: int) -> None:
    expected = torch.linspace(start, stop, count, dtype=torch.float64).numpy()
    np.testing.assert_allclose(compute("linspace", [], start=start, stop=stop, count=count), expected, atol=1e-14)
    step = (stop - start) / count or 0.5
    expected = torch.arange(start, stop, step, dtype=torch.float64).numpy()
    np.testing.assert_allclose(compute("arange", [], start=start, stop=stop, step=step), expected, atol=1e-13)
