"""Functions that make parameters, losses and metrics: shapes, starts, values, and what they refuse."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from op_laws.evaluation import run, values_of
from op_laws.language import check
from op_laws.recorder import FUNCTIONS, Recorder, compute

from dslc.base.errors import CODES
from dslc.compiler.ir.op import Builder, Mismatch
from dslc.compiler.ir.sizes import Dim, Poly, exact_div, of_dim
from dslc.compiler.ir.types import DType
from dslc.compiler.ops import registry

B = of_dim(Dim("B", 1, 64, 8))
H = of_dim(Dim("H", 8, 64, 32))
OPS = registry.ops()


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).uniform(-2, 2, shape)


def test_conv_makes_pytorchs_weights() -> None:
    call = Recorder()
    y = call.build("conv", call.tensor(B, 6, 32, 30), 8, (3, 5), stride=(2,), pad=(1, 2), groups=2)
    assert y.type.shape == (B, 8, 16, 15)
    assert call.leaves["weight"].type.shape == (8, 3, 3, 5) and call.leaves["bias"].type.shape == (8,)
    for leaf in ("weight", "bias"):
        assert call.inits[leaf].kind == "uniform"
        assert call.inits[leaf].args == pytest.approx((-1 / math.sqrt(45), 1 / math.sqrt(45)))


def test_conv_on_symbolic_sizes() -> None:
    call = Recorder()
    same = call.build("conv", call.tensor(B, 3, H, H), 4, (3,), pad=(1,), bias=False)
    assert same.type.shape == (B, 4, H, H) and set(call.leaves) == {"weight"}
    y = Recorder().build("conv", call.tensor(B, 3, 2 * H, H), 4, (4,), stride=(2,), pad=(1,))
    assert y.type.shape[2] == H and isinstance(y.type.shape[3], Poly)
    assert exact_div(y.type.shape[2], 1) == H
    grown = Recorder().build("conv_transpose", call.tensor(B, 4, H, H), 2, (2,), stride=(2,))
    assert grown.type.shape == (B, 2, 2 * H, 2 * H)


def test_conv_transpose_undoes_the_shape_of_conv() -> None:
    call = Recorder()
    x = call.tensor(B, 8, 7, 7)
    y = call.build("conv_transpose", x, 6, (3,), stride=(2,), pad=(1,), output_pad=(1,), groups=2)
    assert y.type.shape == (B, 6, 14, 14) and call.leaves["weight"].type.shape == (8, 3, 3, 3)
    assert call.inits["weight"].args[1] == pytest.approx(1 / math.sqrt(27))


def test_conv_transpose_spreads_each_element() -> None:
    x, w, bias = draw(2, 3, 2, 2), draw(3, 2, 2, 2), draw(2)
    y = compute("conv_transpose", [x], {"weight": w, "bias": bias}, out=2, k=(2,), stride=(2,))
    expected = np.einsum("bcij,cokl->boikjl", x, w).reshape(2, 2, 4, 4) + bias[:, None, None]
    np.testing.assert_allclose(y, expected, rtol=1e-12)


def _spread(x: np.ndarray, w: np.ndarray, s: int, p: int, e: int, d: int) -> np.ndarray:
    """conv_transpose along one axis as PyTorch documents it: each element adds a kernel, then both ends are cut."""
    batch, share, k = x.shape[0], w.shape[1], w.shape[2]
    y = np.zeros((batch, share, (x.shape[2] - 1) * s + d * (k - 1) + 1 + e))
    for i in range(x.shape[2]):
        for t in range(k):
            y[:, :, i * s + t * d] += x[:, :, i] @ w[:, :, t]
    return y[:, :, p : y.shape[2] - p]


@pytest.mark.parametrize("e", range(6))
@pytest.mark.parametrize(("s", "p", "d"), [(1, 0, 1), (2, 1, 1), (1, 0, 4), (1, 2, 3), (2, 1, 5), (3, 2, 2), (2, 3, 5)])
def test_output_pad_is_below_the_stride_or_the_dilation(s: int, p: int, d: int, e: int) -> None:
    x, w = draw(2, 3, 4), draw(3, 2, 3)
    arguments: dict[str, Any] = {"stride": (s,), "pad": (p,), "output_pad": (e,), "dilation": (d,), "bias": False}
    if e >= max(s, d):
        with pytest.raises(Mismatch, match="output_pad"):
            compute("conv_transpose", [x], {"weight": w}, out=2, k=(3,), **arguments)
        return
    y = compute("conv_transpose", [x], {"weight": w}, out=2, k=(3,), **arguments)
    np.testing.assert_allclose(y, _spread(x, w, s, p, e, d), rtol=1e-12, atol=1e-14)
    assert y.shape[2] == (4 - 1) * s - 2 * p + d * (3 - 1) + e + 1


def test_one_size_stands_for_all_axes(tmp_path: Path) -> None:
    """Wherever a list of sizes is taken, as in PyTorch."""
    checked = check(
        tmp_path, "x: [B, 3, 4, 6]", "  return interpolate(x, size=8) + zeros(8) + full(8, 1.0)", "[B, 3, 8, 8]"
    )
    assert checked.graph.outputs["result.output"].type.shape[1:] == (3, 8, 8)
    with pytest.raises(Mismatch, match="2 spatial axes"):
        Recorder().build("interpolate", Recorder().tensor(B, 3, 4, 6), size=(8, 8, 8))


def test_maxpool_steps_by_its_window() -> None:
    call = Recorder()
    assert call.build("maxpool", call.tensor(B, 3, 9, 8), (2,)).type.shape == (B, 3, 4, 4)
    assert call.build("maxpool", call.tensor(B, 3, 9, 8), (3,), (2,), (1,)).type.shape == (B, 3, 5, 4)
    assert call.build("avgpool", call.tensor(B, 3, H, H), (2,), stride=(1,)).type.shape == (B, 3, H - 1, H - 1)


def test_batchnorm_follows_the_batch_and_reads_its_buffers_in_eval() -> None:
    call = Recorder(DType.F64)
    x = draw(4, 3, 2, 2)
    [value] = values_of([x])
    y = call.build("batchnorm", value, eps=1e-3, momentum=0.2)
    start = {
        "weight": np.array([1.0, 2, 3]), "bias": np.array([0.0, 1, 2]),
        "running_mean": np.array([0.5, 0, -0.5]), "running_var": np.array([1.0, 2, 0.5]),
    }  # fmt: skip
    feeds = {value: x} | {call.leaves[k]: v for k, v in start.items()}
    new_mean, new_var = run([call.updates[call.leaves[k]] for k in ("running_mean", "running_var")], feeds)
    np.testing.assert_allclose(new_mean, 0.8 * start["running_mean"] + 0.2 * x.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(new_var, 0.8 * start["running_var"] + 0.2 * x.var((0, 2, 3), ddof=1), rtol=1e-12)
    node: Any = y.producer
    stand_in = node.op.in_eval(node, Builder(name="eval"))
    assert [v.type for v in stand_in] == list(node.types)
    assert stand_in[1:3] == node.inputs[3:]
    [got] = run([stand_in[0]], feeds)
    mean, var, weight, bias = (start[k][:, None, None] for k in ("running_mean", "running_var", "weight", "bias"))
    np.testing.assert_allclose(got, (x - mean) / np.sqrt(var + 1e-3) * weight + bias, rtol=1e-12)


@pytest.mark.parametrize(("name", "leaves"), [("layernorm", 2), ("rmsnorm", 1), ("batchnorm", 4)])
def test_norms_start_as_the_identity(name: str, leaves: int) -> None:
    call = Recorder()
    assert call.build(name, call.tensor(B, 6)).type.shape == (B, 6)
    assert len(call.leaves) == leaves and all(v.type.shape == (6,) for v in call.leaves.values())
    expected = {"weight": 1, "bias": 0, "running_mean": 0, "running_var": 1}
    assert {k: i.args for k, i in call.inits.items()} == {k: (expected[k],) for k in call.leaves}


def test_normalize_of_pixels_and_floats() -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    y = compute("normalize", [pixels], mean=(0.1, 0.2, 0.3), std=(0.5, 1.0, 2.0))
    np.testing.assert_allclose(y, (pixels / 255 - [0.1, 0.2, 0.3]) / [0.5, 1, 2], rtol=1e-12)
    x = draw(2, 3, 4)
    y = compute("normalize", [x], mean=(1.0, 2.0, 3.0), std=(2.0,), axis=1)
    np.testing.assert_allclose(y, (x - np.array([1.0, 2, 3])[:, None]) / 2, rtol=1e-12)


def test_sdpa_scales_by_the_root_of_its_features() -> None:
    q, k, v = draw(2, 3, 4), draw(2, 3, 4, seed=1), draw(2, 3, 5, seed=2)
    e = np.exp(q @ k.swapaxes(1, 2) / 2) * np.tri(3)
    np.testing.assert_allclose(compute("sdpa", [q, k, v], causal=True), e / e.sum(-1, keepdims=True) @ v, rtol=1e-12)


def test_cross_entropy_counts_what_is_not_ignored() -> None:
    x, t = draw(2, 3, 4), np.array([[0, 1, 2, 2], [1, 1, 0, 2]], np.int32)
    p = np.log(np.exp(x) / np.exp(x).sum(1, keepdims=True))
    each = -np.take_along_axis(p, t[:, None], 1)[:, 0]
    assert compute("cross_entropy", [x, t], axis=1) == pytest.approx(each.mean())
    assert compute("cross_entropy", [x, t], axis=1, ignore_index=2) == pytest.approx(each[t != 2].mean())
    assert compute("cross_entropy", [x, t], axis=1, reduce="sum") == pytest.approx(each.sum())
    assert compute("cross_entropy", [x, t], axis=-2, reduce="none") == pytest.approx(each)
    smooth = 0.8 * each - 0.2 * p.mean(1)
    assert compute("cross_entropy", [x, t], axis=1, smoothing=0.2) == pytest.approx(smooth.mean())
    assert compute("nll", [p, t], axis=1, ignore_index=0) == pytest.approx(each[t != 0].mean())


def test_a_target_that_is_no_class_gives_nan() -> None:
    for name in ("cross_entropy", "nll"):
        for wrong in (3, -1):
            found = compute(name, [draw(2, 3), np.array([0, wrong], np.int64)], reduce="none")
            assert np.isnan(found).tolist() == [False, True]


def test_accuracy_takes_the_lower_of_equal_classes() -> None:
    x = np.array([[1.0, 3, 3], [2, 2, 0], [0, 1, 2], [np.nan, 0, 1]])
    t = np.array([1, 1, 2, 0], np.int32)
    assert compute("accuracy", [x, t]) == np.mean([1, 0, 1, 0])
    assert compute("accuracy", [x, t], top=2) == np.mean([1, 1, 1, 0])
    assert compute("accuracy", [x, t], ignore_index=1) == np.mean([1, 0])
    rng = np.random.default_rng(5)
    x, t = rng.integers(0, 4, (200, 6)).astype(float), rng.integers(0, 6, 200)
    assert compute("accuracy", [x, t]) == pytest.approx(np.mean(x.argmax(1) == t))


def test_losses_of_pairs() -> None:
    x, t = draw(3, 4), draw(3, 4, seed=1)
    e = np.abs(x - t)
    assert compute("mse", [x, t]) == pytest.approx((e**2).mean())
    assert compute("l1", [x, t], reduce="sum") == pytest.approx(e.sum())
    assert compute("huber", [x, t], delta=0.7) == pytest.approx(np.where(e < 0.7, e * e / 2, 0.7 * (e - 0.35)).mean())
    p = np.abs(t)
    p[0, 0] = 0
    with np.errstate(all="ignore"):
        expected = np.where(p > 0, p * (np.log(p) - x), 0)
    assert compute("kl_div", [x, p], reduce="none") == pytest.approx(expected)
    s = 1 / (1 + np.exp(-x))
    target = (t + 2) / 4
    expected = -(target * np.log(s) + (1 - target) * np.log(1 - s))
    assert compute("bce_with_logits", [x, target], reduce="none") == pytest.approx(expected)
    assert compute("bce_with_logits", [x, target]) == pytest.approx(expected.mean())


REFUSED = [
    ("conv", [(8, 3, 8, 8)], {"out": 4, "k": (9,)}, "E0308"),
    ("conv", [(8, 3)], {"out": 4, "k": (3,)}, "E0203"),
    ("conv", [(8, 3, 8, 8)], {"out": 4, "k": (3, 3, 3)}, "E0209"),
    ("conv", [(8, 3, 8, 8)], {"out": 4, "k": (0,)}, "E0209"),
    ("conv", [(8, 3, 8, 8)], {"out": 4, "k": (3,), "stride": (0,)}, "E0209"),
    ("conv", [(8, 3, 8, 8)], {"out": 4, "k": (3,), "pad": (-1,)}, "E0209"),
    ("conv", [(8, 3, 8, 8)], {"out": 4, "k": (3,), "groups": 2}, "E0303"),
    ("conv", [(8, 4, 8, 8)], {"out": 3, "k": (3,), "groups": 2}, "E0303"),
    ("conv", [(8, 4, 8, 8)], {"out": 4, "k": (3,), "groups": 0}, "E0209"),
    ("conv", [(8, 4, 8, 8)], {"out": 0, "k": (3,)}, "E0209"),
    ("conv", [(8, 0, 8, 8)], {"out": 4, "k": (3,)}, "E0308"),
    ("conv", [(8, B, 8, 8)], {"out": 4, "k": (3,)}, "E0307"),
    ("conv", [(8, 3, B, 8)], {"out": 4, "k": (3,)}, "E0308"),  # B may be 1
    ("conv", ["i32"], {"out": 4, "k": (3,)}, "E0204"),
    ("conv_transpose", [(8, 3, 8, 8)], {"out": 4, "k": (3,), "output_pad": (1,)}, "E0209"),
    ("conv_transpose", [(8, 3, 1, 1)], {"out": 4, "k": (2,), "pad": (1,)}, "E0308"),
    ("maxpool", [(8, 3, 8, 8)], {"k": (2,), "pad": (2,)}, "E0209"),
    ("maxpool", [(8, 3, 1, 1)], {"k": (2,)}, "E0308"),
    ("maxpool", ["i32"], {"k": (2,)}, "E0204"),
    ("avgpool", [(8, 3, 8)], {"k": (2, 2)}, "E0209"),
    ("batchnorm", [(8,)], {}, "E0203"),
    ("batchnorm", ["i32"], {}, "E0204"),
    ("batchnorm", [(8, 3)], {"momentum": 1.5}, "E0209"),
    ("batchnorm", [(8, 3)], {"eps": 0.0}, "E0209"),
    ("batchnorm", [(8, 0)], {}, "E0308"),
    ("layernorm", [(8, 3)], {"axis": 2}, "E0306"),
    ("layernorm", [()], {}, "E0306"),
    ("layernorm", [(8, 0)], {}, "E0308"),
    ("rmsnorm", [(8, 0)], {}, "E0308"),
    ("groupnorm", [(8, 6)], {"groups": 4}, "E0303"),
    ("groupnorm", [(8,)], {"groups": 1}, "E0203"),
    ("normalize", [(8, 3)], {"mean": (0.0, 1.0), "std": (1.0,)}, "E0302"),
    ("normalize", [(8, 3)], {"mean": (0.0,), "std": (0.0,)}, "E0209"),
    ("normalize", ["i32"], {"mean": (0.0,), "std": (1.0,)}, "E0204"),
    ("sdpa", [(2, 3, 4), (2, 4, 4), (2, 4, 4)], {"causal": True}, "E0302"),
    ("sdpa", [(2, 3, 4), (1, 3, 4), (2, 3, 4)], {}, "E0302"),
    ("sdpa", [(2, 3, 4), (2, 3, 5), (2, 3, 4)], {}, "E0302"),
    ("sdpa", [(2, 3, 4), (2, 3, 4), (2, 2, 4)], {}, "E0302"),
    ("sdpa", [(4,), (4,), (4,)], {}, "E0203"),
    ("sdpa", [(2, 3, B), (2, 3, B), (2, 3, 4)], {}, "E0307"),
    ("sdpa", [(2, 3, 0), (2, 3, 0), (2, 3, 4)], {}, "E0308"),
    ("sdpa", [(2, 3, 4), (2, 3, 4), (2, 3, 4), False, (3, 3)], {}, "E0202"),
    ("cross_entropy", [(8, 3), (8,)], {}, "E0204"),
    ("cross_entropy", [(8, 3), "i32"], {}, "E0302"),
    ("cross_entropy", [(), "i32"], {}, "E0306"),
    ("cross_entropy", [(8, 0), "i32[8]"], {}, "E0308"),
    ("cross_entropy", [(8, 3), "i32[8]"], {"smoothing": 1.5}, "E0209"),
    ("cross_entropy", [(8, 3), "i32[8]"], {"reduce": "average"}, "E0209"),
    ("accuracy", [(8, 3), "i32[8]"], {"top": 4}, "E0209"),
    ("accuracy", [(8, 3), "i32[3]"], {}, "E0302"),
    ("mse", [(8, 3), (8, 1)], {}, "E0302"),
    ("huber", [(8, 3), (8, 3)], {"delta": 0.0}, "E0209"),
    ("bce_with_logits", [(8, 3), (3,)], {}, "E0302"),
]


def _tensor(call: Recorder, given: Any) -> Any:
    if isinstance(given, bool):
        return given
    if isinstance(given, str):
        shapes = {"i32[8]": (8,), "i32[3]": (3,), "i32[8, 4]": (8, 4)}
        return call.tensor(*shapes.get(given, (8, 3, 8, 8)), dtype=DType.I32)
    return call.tensor(*given)


@pytest.mark.parametrize(
    ("name", "tensors", "named", "code"), REFUSED, ids=[f"{i}-{r[0]}" for i, r in enumerate(REFUSED)]
)
def test_what_does_not_fit_is_refused(name: str, tensors: list[Any], named: dict[str, Any], code: str) -> None:
    call = Recorder()
    with pytest.raises(Mismatch) as caught:
        call.build(name, *(_tensor(call, t) for t in tensors), **named)
    assert caught.value.code == code and code in CODES and caught.value.why


def test_the_help_names_the_axis_of_the_classes() -> None:
    call = Recorder()
    with pytest.raises(Mismatch) as caught:
        call.build("cross_entropy", call.tensor(B, 3, 4, 4), call.tensor(B, 4, 4, dtype=DType.I32))
    assert caught.value.help == "`axis=1` if that is the axis of the classes"


@pytest.mark.parametrize("pad", range(4))
def test_the_pad_that_the_help_gives_works(pad: int) -> None:
    helped = 0
    for size in range(1, 12):
        call = Recorder()
        x = call.tensor(8, 3, size, 9)
        try:
            call.build("conv", x, 4, (5,), pad=(pad,), dilation=(2,))
        except Mismatch as refused:
            assert refused.help is not None
            wanted = int(refused.help.split("pad=")[1].rstrip("`"))
            Recorder().build("conv", x, 4, (5,), pad=(wanted,), dilation=(2,))
            with pytest.raises(Mismatch):  # and no smaller one does
                Recorder().build("conv", x, 4, (5,), pad=(wanted - 1,), dilation=(2,))
            helped += 1
    assert helped == max(0, 8 - 2 * pad)


ROWS: list[tuple[str, list[Any], dict[str, Any], list[int | None], tuple[int | None, ...] | None]] = [
    ("softmax_cross_entropy", [(8, 3, 4), "i32[8, 4]"], {"axis": 1, "smoothing": 0.0}, [0, 0], (0, 0, 0)),
    ("softmax_cross_entropy", [(8, 3, 4), "i32[8, 4]"], {"axis": 1, "smoothing": 0.0}, [2, 1], (1, 1, 1)),
    ("softmax_cross_entropy", [(8, 3, 4), "i32[8, 4]"], {"axis": 1, "smoothing": 0.0}, [1, 1], None),
    ("softmax_cross_entropy", [(8, 3, 4), "i32[8, 4]"], {"axis": 1, "smoothing": 0.0}, [0, None], None),
    ("in_top_k", [(8, 3), "i32[8]"], {"axis": 1, "top": 1}, [0, 0], (0,)),
    ("nll_grad", ["i32[8, 4]", (8, 4)], {"axis": 1, "classes": 3}, [1, 1], (2,)),
    ("layernorm", [(8, 3, 4), (3,), (3,)], {"axis": 1, "eps": 1e-5}, [2, None, None], (2, 1, 1)),
    ("layernorm", [(8, 3, 4), (3,), (3,)], {"axis": 1, "eps": 1e-5}, [1, None, None], None),
    ("batchnorm", [(8, 3), (3,), (3,), (3,), (3,)], {"eps": 1e-5, "momentum": 0.1}, [0, None, None, None, None], None),
    ("sdpa", [(8, 2, 4), (8, 2, 4), (8, 2, 4)], {"causal": False, "scale": 1.0}, [0, 0, 0], (0, 0)),
    ("sdpa", [(8, 2, 4), (8, 2, 4), (8, 2, 4)], {"causal": False, "scale": 1.0}, [1, 1, 1], None),
    ("sdpa", [(8, 2, 4), (8, 2, 4), (8, 2, 4)], {"causal": False, "scale": 1.0}, [0, 0, None], None),
    ("maxpool", [(8, 3, 4)], {"k": (2,), "stride": (2,), "pad": (0,)}, [1], (1, 1)),
    ("maxpool", [(8, 3, 4)], {"k": (2,), "stride": (2,), "pad": (0,)}, [2], None),
]


@pytest.mark.parametrize(("name", "tensors", "attrs", "axes", "expected"), ROWS)
def test_where_rows_lie(name: str, tensors: list[Any], attrs: dict[str, Any], axes: Any, expected: Any) -> None:
    call = Recorder()
    node: Any = call.emit_all(OPS[name], *(_tensor(call, t) for t in tensors), **attrs)[0].producer
    assert node.op.rows(node, axes) == expected


def test_every_argument_has_an_annotation_the_checker_knows() -> None:
    for name in ("conv", "conv_transpose", "maxpool", "batchnorm", "layernorm", "sdpa", "cross_entropy", "accuracy"):
        assert all(p.annotation is not p.empty for p in FUNCTIONS[name].parameters)


def test_a_step_of_lenets_convolutions_takes_no_loop_over_elements() -> None:
    """64 images through the meanings of LeNet's convolutions and pools, forward and backward, against plain matrix
    products of as many operations, in processor time. It takes about ten times as long, for what is copied; a loop over
    elements takes over a thousand times as long."""
    x, w1, w2 = (a.astype(np.float32) for a in (draw(64, 1, 28, 28), draw(6, 1, 5, 5), draw(16, 6, 5, 5)))
    plain: dict[str, Any] = {"stride": [1, 1], "dilation": [1, 1], "groups": 1}
    wide, tight = plain | {"pad": [2, 2]}, plain | {"pad": [0, 0]}
    pool: dict[str, Any] = {"k": [2, 2], "stride": [2, 2], "pad": [0, 0]}

    def step() -> None:
        [a] = OPS["conv"].meaning([x, w1], wide)
        p, i = OPS["maxpool"].meaning([a], pool)
        [c] = OPS["conv"].meaning([p, w2], tight)
        q, j = OPS["maxpool"].meaning([c], pool)
        [dc] = OPS["maxpool_grad"].meaning([q, j], pool | {"size": [10, 10]})
        OPS["conv_wgrad"].meaning([p, dc], tight | {"size": [5, 5]})
        [dp] = OPS["conv_dgrad"].meaning([dc, w2], tight | {"size": [14, 14]})
        [da] = OPS["maxpool_grad"].meaning([dp, i], pool | {"size": [28, 28]})
        OPS["conv_wgrad"].meaning([x, da], wide | {"size": [5, 5]})

    first = np.ones((64 * 28 * 28, 25), np.float32), np.ones((25, 6), np.float32)
    second = np.ones((64 * 10 * 10, 150), np.float32), np.ones((150, 16), np.float32)

    def products() -> None:
        for a, b in (first, first, second, second, second):
            np.matmul(a, b)

    def seconds(work: Callable[[], None]) -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    pairs = [(seconds(step), seconds(products)) for _ in range(5)]
    ratio = min(a for a, _ in pairs) / min(b for _, b in pairs)
    print(f"{ratio:.1f} times the products alone")
    assert ratio < 200


@pytest.mark.parametrize("eps", [0.0, 1e-5, 1.0, 7.0])
@pytest.mark.parametrize("name", ["layernorm", "rmsnorm", "groupnorm", "instancenorm", "batchnorm"])
def test_any_eps_of_pytorch_is_taken(name: str, eps: float) -> None:
    """From 0 on, but for batchnorm's, which PyTorch wants above 0."""
    x = draw(4, 2, 3)
    named: dict[str, Any] = {"eps": eps} | ({"groups": 1} if name == "groupnorm" else {})
    call = Recorder(DType.F64)
    [value] = values_of([x])
    if name == "batchnorm" and not eps:
        with pytest.raises(Mismatch) as caught:
            call.build(name, value, **named)
        assert "above 0" in str(caught.value.help)
        return
    y = call.build(name, value, **named)
    feeds = {value: x} | {
        leaf: np.full(leaf.type.ints, float(call.inits[key].args[0])) for key, leaf in call.leaves.items()
    }
    over = {"layernorm": (2,), "rmsnorm": (2,), "groupnorm": (1, 2), "instancenorm": (2,), "batchnorm": (0, 2)}[name]
    centred = x if name == "rmsnorm" else x - x.mean(over, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(over, keepdims=True) + eps)
    np.testing.assert_allclose(run([y], feeds)[0], expected, rtol=1e-12)
    for wrong in (-1e-5, float("inf"), float("nan")):
        with pytest.raises(Mismatch, match="eps"):
            Recorder(DType.F64).build(name, value, **{**named, "eps": wrong})
