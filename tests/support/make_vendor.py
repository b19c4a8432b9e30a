"""What ``test_vendor.py`` runs on a GPU: ``.gpu/vendor``, models built with both providers, and random contractions
and attention.

    python tests/support/make_vendor.py [ARCHITECTURE]

Needs the packages that compile for CUDA and no GPU; takes some minutes.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from places import MODELS
from real_gpu.kernel_store import STORE, Writer
from real_gpu.vendor_cases import convolution, describe, node_of

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ops import registry
from dslc.compiler.options import Options

FOLDER = STORE / "vendor"
RESNET = """nn 1
dim B in 1..64 = 16
block cbr(x: [B, C, H, W], out: int, k: int, s: int = 1, act: bool = true) -> [B, out, H/s, W/s] {
  y = x |> conv(out, k, stride=s, pad=k//2, bias=false) |> batchnorm
  return relu(y) if act else y
}
block basic(x: [B, C, H, W], out: int, s: int = 1) -> [B, out, H/s, W/s] {
  y = x |> cbr(out, 3, s) as a |> cbr(out, 3, act=false) as b
  skip = x if C == out and s == 1 else x |> cbr(out, 1, s, act=false) as proj
  return relu(y + skip)
}
model Resnet(image: [B, 3, 32, 32]) -> [B, 10] {
  x = image |> cbr(32, 3) as stem |> basic(32) as one |> basic(64, 2) as two |> basic(96, 2) as three
  return x |> mean(over=[2, 3]) |> linear(10) as head
}
train Resnet(label: i32[B]) {
  loss      = cross_entropy(output, label)
  optimizer = sgd(lr=0.05, momentum=0.9)
}
"""
MLP = """nn 1
dim B in 1..512 = 64
model Mlp(image: [B, 784]) -> [B, 10] {
  return image |> linear(512) as a |> gelu |> linear(300) as b |> gelu |> linear(10) as c
}
train Mlp(label: i32[B]) {
  loss      = cross_entropy(output, label)
  optimizer = sgd(lr=0.05, momentum=0.9)
}
"""


def models(architecture: str) -> None:
    """``NAME.PROVIDER.dslc`` of each model."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in (("resnet", RESNET), ("mlp", MLP)):
        (FOLDER / f"{name}.nn").write_text(text, encoding="utf-8")
    given = [("lenet", MODELS / "lenet.nn", None), ("mlp", FOLDER / "mlp.nn", "bf16"),
             ("mlp32", FOLDER / "mlp.nn", None), ("resnet", FOLDER / "resnet.nn", "bf16"),
             ("resnet32", FOLDER / "resnet.nn", None), ("resnet_tf32", FOLDER / "resnet.nn", "tf32"),
             ("mlp_tf32", FOLDER / "mlp.nn", "tf32")]  # fmt: skip
    for name, path, precision in given:
        for provider in ("own", "vendor"):
            options = Options(target=architecture, provider=provider, precision=precision)
            built = pipeline.build(check_file(path), options)
            (FOLDER / f"{name}.{provider}.dslc").write_bytes(built.artifact)
            print(name, provider, len(built.artifact) >> 10, "KiB", f"{built.seconds:.1f} s", flush=True)


#: Of random contractions.
DTYPES = ("bf16", "f32", "f16", "tf32")


def _typed(dtype: str) -> tuple[str, dict[str, Any]]:
    """The tensors' dtype, and the node's other attributes."""
    return ("f32", {"tf32": True}) if dtype == "tf32" else (dtype, {})


def random_product(rng: np.random.Generator) -> tuple[str, Node]:
    """Odd sizes, stacks that broadcast, transposes."""
    m, n, k = (int(v) for v in rng.integers(1, 400, 3))
    stacks: Any = [((), ()), ((5,), (5,)), ((5,), ()), ((1,), (5,)), ((5,), (1,))][int(rng.integers(5))]
    ta, tb = bool(rng.integers(2)), bool(rng.integers(2))
    dtype = DTYPES[int(rng.integers(4))]
    held, more = _typed(dtype)
    a, b = (*stacks[0], *((k, m) if ta else (m, k))), (*stacks[1], *((n, k) if tb else (k, n)))
    node = node_of("matmul", (a, b), held, transpose_a=ta, transpose_b=tb, **more)
    return f"matmul {a} {b} {dtype} {'nt'[ta]}{'nt'[tb]}", node


def random_convolution(rng: np.random.Generator) -> tuple[str, Node]:
    """Any of the three, in one to three dimensions, with strides, pads, dilations and groups of all kinds."""
    while True:
        dtype = DTYPES[int(rng.integers(4))]
        held, more = _typed(dtype)
        run = 8 if held != "f32" and rng.integers(4) else 1
        axes, groups = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 3]))
        size = {1: (200, 900), 2: (9, 40), 3: (6, 14)}[axes]
        into, out = (run * int(v) for v in rng.integers(1, 9, 2))
        x = (int(rng.integers(1, 9)), groups * into, *(int(v) for v in rng.integers(*size, axes)))
        w = (groups * out, into, *(int(v) for v in rng.integers(1, 6, axes)))
        limits = {"stride": (1, 4), "pad": (0, 4), "dilation": (1, 3)}
        attrs = {name: tuple(map(int, rng.integers(*limit, axes))) for name, limit in limits.items()}
        if all(s + 2 * p > d * (t - 1) for s, p, d, t in zip(x[2:], attrs["pad"], attrs["dilation"], w[2:])):
            kind = ["conv", "conv_dgrad", "conv_wgrad"][int(rng.integers(3))]
            return f"{kind} {x} {w} {attrs} {dtype}", convolution(kind, x, w, held, **attrs, **more)


def random_attention(rng: np.random.Generator) -> tuple[str, Node]:
    """Heads that share keys or not, any lengths, causal, in windows or not, forward or its gradient."""
    share, heads, batch = int(rng.choice([1, 1, 3])), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    length = int(rng.integers(100, 300))
    causal, d = bool(rng.integers(2)), 8 * int(rng.integers(4, 17))
    keys = length if causal or rng.integers(3) == 0 else int(rng.integers(100, 300))
    q, k = (batch, heads * share, length, d), (batch, heads, keys, d)
    attrs: dict[str, Any] = {"scale": d**-0.5, "causal": causal}
    attrs |= {"window": int(rng.integers(1, length))} if keys == length and rng.integers(2) else {}
    node = node_of("sdpa", (q, k, k), ("bf16", "f16")[int(rng.integers(2))], **attrs)
    if rng.integers(3):
        [dy] = node_of("sdpa", (q, k, k), node.types[0].dtype.value, **attrs).inputs[:1]
        node = Builder(name="case").node(registry.ops()["sdpa_grad"], *node.inputs, *node.outputs, dy, **attrs)
    return f"{node.op.name} {q} {k} {'causal ' * causal}{attrs.get('window', '')} {node.types[0].dtype.value}", node


def drawn(node: Node, rng: np.random.Generator) -> list[np.ndarray]:
    """Inputs that their types hold exactly; those of a gradient of attention fit each other."""
    xs = [rng.integers(-8, 9, t.ints).astype(np.float64) / 8 for t in node.input_types]
    if node.op.name == "sdpa_grad":
        y, lse = registry.ops()["sdpa"].meaning(xs[:3], node.attrs)
        xs[3:5] = np.round(y * 128) / 128, lse.astype(np.float32).astype(np.float64)
    return xs


def contractions(architecture: str) -> None:
    """Ten products, twenty convolutions and twelve attentions, with operands that each type holds exactly, and the
    results in f64."""
    store, rng = Writer(architecture), np.random.default_rng(20)
    for make, count in ((random_product, 10), (random_convolution, 20), (random_attention, 12)):
        end = len(store.cases) + count
        while len(store.cases) < end:
            name, node = make(rng)
            case = describe(store, name, node)
            if case is not None:
                xs = drawn(node, rng)
                case["inputs"] = [store.array(x.astype(np.float32)) for x in xs]
                case["exact"] = [store.array(np.asarray(each)) for each in node.op.meaning(xs, node.attrs)]
    store.finish(FOLDER)
    print(len(store.cases), "contractions and attentions,", len(store.data) >> 10, "KiB before compression")


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else "sm_90"
    models(chosen)
    contractions(chosen)
