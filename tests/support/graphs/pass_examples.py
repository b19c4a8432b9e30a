"""Small models that, between them, every pass of the pipeline changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from op_laws.evaluation import apply
from sources.in_memory import files

from dslc.compiler import pipeline
from dslc.compiler.artifact.state_layout import layout_state
from dslc.compiler.check.model import check_program
from dslc.compiler.ir.build import Build, Pass
from dslc.compiler.ir.function import FUNCTIONS, Call, Function
from dslc.compiler.ir.graph import Body, Graph, Kind, Node, Value
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.packages.composed import Composed, Functions
from dslc.compiler.ops.registry import load_all
from dslc.compiler.options import Options
from dslc.compiler.passes.order import PIPELINE
from dslc.compiler.passes.runner import pass_name
from dslc.runtime.artifact.dtypes import numpy_dtype

#: Floats that are computed in f64 here.
_NARROW = (DType.FLOAT, DType.F32, DType.F16, DType.BF16)
_POSITIVE = (Kind.BUFFER, Kind.OPTIMIZER, Kind.SCALAR)

SOURCES = {
    "mlp": """nn 1
dim B in 1..512 = 64
model M(x: [B, 16]) -> [B, 4] {
  return x |> linear(64) as a |> relu |> dropout(0.25) |> linear(64) as b |> relu |> dropout(0.25) |> linear(4) as c
}
train M(label: i32[B]) { loss = cross_entropy(output, label); optimizer = sgd(lr=0.1, momentum=0.9, clip_norm=1.0) }
""",
    "convolutions": """nn 1
dim B in 1..512 = 4
block cbr(x: [B, C, H, W], out: int, act: bool = true) -> [B, out, H, W] {
  y = x |> conv(out, 3, pad=1, bias=false) |> batchnorm
  return relu(y) if act else y
}
model M(image: [B, 3, 32, 32]) -> [B, 5] {
  x = image |> cbr(8) as a
  y = x |> cbr(8) as b |> cbr(8, act=false) as c
  return relu(x + y) |> cbr(8) as d |> mean(over=[2, 3]) |> linear(5) as head
}
train M(label: i32[B]) { loss = cross_entropy(output, label); optimizer = sgd(lr=0.1, momentum=0.9) }
""",
    "grouped": """nn 1
dim B in 1..512 = 4
dim T = 8
model M(x: [B, T, 16]) -> [B, 4] {
  q = x |> linear(16) as q |> rearrange("B T (h d) -> B h T d", h=4)
  k, v = x |> linear(16) as kv |> rearrange("B T (two h d) -> two B h T d", two=2, h=2)
  y = sdpa(q, k, v, causal=true, window=3) |> rearrange("B h T d -> B T (h d)")
  return y |> mean(over=[1]) |> linear(4) as head
}
train M(label: i32[B]) { loss = cross_entropy(output, label); optimizer = sgd(lr=0.1) }
""",
    "transformer": """nn 1
dim B in 1..512 = 4
dim T = 8
block attention(x: [B, T, D], heads: int) -> [B, T, D] {
  q, k, v = x |> linear(3*D) as qkv |> rearrange("B T (three h d) -> three B h T d", three=3, h=heads)
  y = sdpa(q, k, v, causal=true)
  return y |> rearrange("B h T d -> B T (h d)") |> linear(D) as proj |> dropout(0.25)
}
model M(ids: i32[B, T]) -> [B, T, 32] {
  layer tok = embedding(32, 16)
  x = tok(ids)
  for i in 0..2 as h {
    x = x + (x |> layernorm as ln1 |> attention(2) as attn)
    x = x + (x |> layernorm as ln2 |> linear(64) as fc |> gelu |> linear(16) as proj |> dropout(0.25))
  }
  return x |> layernorm as ln_f |> linear(32) as head
}
train M(target: i32[B, T]) { loss = cross_entropy(output, target); optimizer = adamw(lr=0.01, clip_norm=1.0) }
""",
    "attention": """nn 1
dim B in 1..512 = 4
dim T = 64
model M(x: [B, T, 64]) -> [B, T, 64] {
  q, k, v = x |> linear(192) as qkv |> rearrange("B T (three h d) -> three B h T d", three=3, h=2)
  return x + (sdpa(q, k, v, causal=true) |> rearrange("B h T d -> B T (h d)") |> linear(64) as proj)
}
train M(target: [B, T, 64]) { loss = mse(output, target); optimizer = sgd(lr=0.1) }
""",
    "biased": """nn 1
dim B in 1..512 = 4
dim T = 8
model M(x: [B, T, 16]) -> [B, T, 16] {
  q, k, v = x |> linear(48) as qkv |> rearrange("B T (three h d) -> three B h T d", three=3, h=2)
  param near: [2, T, T] = normal(0.5)
  return softmax(q @ k.T * 0.35 + near) @ v |> rearrange("B h T d -> B T (h d)")
}
train M(target: [B, T, 16]) { loss = mse(output, target); optimizer = sgd(lr=0.1) }
""",
    "words": """nn 1
dim B in 1..512 = 64
model M(x: [B, 64]) -> [B, 1030] { return x |> linear(1030) as head }
train M(label: i32[B]) { loss = cross_entropy(output, label); optimizer = sgd(lr=0.1) }
""",
    "recurrent": """nn 1
dim B in 1..512 = 256
model M(x: [B, 4, 64], h0: [B, 64], c0: [B, 64]) -> [B, 8] {
  param wx: [64, 256] = uniform(0.05)
  param wh: [64, 256] = uniform(0.05)
  h, c = h0, c0
  for t in 0..4 {
    i, f, g, o = split(x[:, t] @ wx + h @ wh, 4)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h = sigmoid(o) * tanh(c)
  }
  return h |> linear(8) as head
}
train M(target: [B, 8]) { loss = mse(output, target); optimizer = sgd(lr=0.1) }
""",
    "looped": """nn 1
dim B in 1..512 = 4
model M(x: [B, 4, 8]) -> [B, 4, 8] {
  param wx: [8, 32] = uniform(0.3)
  param wh: [8, 32] = uniform(0.3)
  param bias: [32] = uniform(0.3)
  h = zeros([B, 8])
  c = h
  scan xt in x along 1 carry h, c into y {
    i, f, g, o = split(xt @ wx + h @ wh + bias, 4)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h = sigmoid(o) * tanh(c)
    yield h
  }
  return y
}
train M(target: [B, 4, 8]) { loss = mse(output, target); optimizer = sgd(lr=0.1) }
""",
    "gated": """nn 1
dim B in 1..512 = 4
model M(x: [B, 8]) -> [B, 4] {
  return x |> linear(8) as a |> gate
}
train M(target: [B, 4]) { loss = mse(output, target); optimizer = sgd(lr=0.1) }
""",
    "edges": """nn 1
dim B in 1..512 = 16
model M(x: [B, 3], source: i32[9000], sink: i32[9000]) -> [B, 2] {
  degree = index_put(ones([B]), [sink], ones([9000]), mode="add")
  h = x |> linear(4) as first
  h = index_put(h, [sink], h[source], mode="add") / reshape(degree, [B, 1])
  return h |> relu |> linear(2) as second
}
train M(target: [B, 2]) { loss = mse(output, target); optimizer = sgd(lr=0.1) }
""",
    "last": """nn 1
dim B in 1..8 = 2
model M(image: [B, 4, 4, 3]) -> [B, 2] {
  x = transpose(image, [0, 3, 1, 2]) |> relu |> avgpool(2)
  return transpose(x, [0, 2, 3, 1]) |> flatten |> linear(2) as head
}
train M(target: [B, 2]) { loss = mse(output, target); optimizer = sgd(lr=0.1) }
""",
    "tables": """nn 1
dim B in 1..64 = 4
model M(ids: i32[B, 3]) -> [B, 2] {
  a = ids[:, 0] |> embedding(90, 8) as a
  b = ids[:, 1] |> embedding(70, 8) as b
  c = ids[:, 2] |> embedding(9, 8) as c
  z = stack([a, b, c], axis=1)
  p = z @ z.T
  return concat([a, p[:, 1, 0:1], p[:, 2, 0:2]], axis=1) |> linear(2) as head
}
train M(target: [B, 2]) { loss = mse(output, target); optimizer = sgd(lr=0.1) }
""",
}


class _GateOp(Composed):
    """examples.gate(x): an op as a package brings it."""

    name = "examples.gate"

    def compose(self, f: Functions, *xs: Any, **attrs: Any) -> Value:
        a, b = f.split(xs[0], 2, axis=-1)
        gated: Value = f.mul(f.relu(a), b)
        return gated

    def meaning(self, xs: Sequence[np.ndarray], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        a, b = np.split(xs[0], 2, axis=-1)
        return [np.maximum(a, 0) * b]


class _Gate(Function):
    """gate(x): its function."""

    name = "gate"

    def build(self, call: Call, x: Value) -> Value:
        return call.emit(_GATE, x)


_GATE = _GateOp()


@contextmanager
def _package() -> Iterator[None]:
    """The op is in the tables only while an example is compiled: other tests list these."""
    load_all()
    OPS[_GATE.name], FUNCTIONS["gate"] = _GATE, _Gate()
    try:
        yield
    finally:
        del OPS[_GATE.name], FUNCTIONS["gate"]


@dataclass(frozen=True)
class Example:
    """A training step of a model for a target, with B rows."""

    model: str
    rows: int
    target: str
    precision: str | None = None
    mirror: int | str = "auto"
    streams: int = 1
    provider: str = "own"

    def __str__(self) -> str:
        words = [self.model, self.rows, self.target, self.precision or "f32", self.mirror, self.streams]
        words += [self.provider] * (self.provider != "own")
        return "-".join(str(word) for word in words)


EXAMPLES = (
    Example("mlp", 64, "cpu"),
    Example("last", 2, "cpu"),
    Example("mlp", 64, "sm_90", "tf32", streams=2),
    Example("convolutions", 4, "cpu", mirror=1),
    Example("convolutions", 4, "sm_90", mirror=1),
    Example("convolutions", 32, "sm_90", "bf16"),
    Example("transformer", 4, "sm_90"),
    Example("grouped", 4, "cpu"),
    Example("attention", 4, "sm_90", "bf16", provider="vendor"),
    Example("biased", 4, "sm_90", "bf16"),
    Example("words", 64, "sm_90", "bf16", provider="vendor"),
    Example("recurrent", 4, "sm_90", "bf16"),
    Example("looped", 4, "sm_90", "bf16"),
    Example("edges", 16, "sm_90"),
    Example("tables", 4, "sm_90", "bf16"),
    Example("gated", 4, "cpu"),
    Example("gated", 4, "cpu", "bf16"),
)


@dataclass(frozen=True)
class Step:
    """A pass, and the program before and after it."""

    run: Callable[[Program], Program]
    before: Program
    after: Program


@cache
def steps(example: Example) -> Mapping[str, Step]:
    """By name, every pass of the pipeline as it ran over an example."""
    with _package():
        return _steps(example)


def _steps(example: Example) -> Mapping[str, Step]:
    checked = check_program(files(SOURCES[example.model]))
    options = Options(
        target=example.target, provider=example.provider, precision=example.precision, mirror=example.mirror,
        streams=example.streams,
    )  # fmt: skip
    sizes = {dim.name: example.rows if dim.name == "B" else dim.default for dim in checked.dims}
    kept: dict[str, Program] = {}
    pipeline.compile_entry(checked, "train_step", sizes, options, keep=kept.__setitem__)
    dtypes = pipeline.precision_of(checked, options)
    layout = layout_state(checked, dtypes.params, dtypes.loss_scale)
    build = pipeline.build_options(checked, options, layout, example.target)
    programs = list(kept.values())
    return {
        pass_name(step): Step(partial(_run, step, build), before, after)
        for step, before, after in zip(PIPELINE, programs[:-1], programs[1:], strict=True)
    }


def _run(step: Pass, build: Build, program: Program) -> Program:
    with _package():
        return step(program, build)


def source_of(step: Pass) -> str:
    """The file of a pass in compiler/passes, as ``stage/module``."""
    found = step.__module__.partition(".passes.")[2].replace(".", "/")
    return (
        f"{step.__name__}/{step.__name__}" if found == "order" else found
    )  # mirror, which is told the passes after it


def feeds_of(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    """Arrays that the models may be given: labels and tokens that exist, variances that are positive."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, np.ndarray] = {}
    for source in graph.inputs:
        type = source.value.type
        if type.dtype in _NARROW:
            drawn = rng.uniform(-1, 1, type.ints)
            feeds[source.name] = np.asarray(np.abs(drawn) if source.kind in _POSITIVE else drawn)
        else:
            feeds[source.name] = np.asarray(rng.integers(0, 4, type.ints), numpy_dtype(type.dtype.value))
    return feeds


def evaluate(graph: Graph, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs by name, and updates as ``update NAME``; in f64, so that no rounding hides the effect of a pass."""
    known = {i.value: feeds[i.name] for i in graph.inputs}
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            attrs = {name: _widened(attr) for name, attr in node.attrs.items()}
            found = [np.asarray(x) for x in apply(node.op, [known[v] for v in node.inputs], attrs)]
            known.update(zip(node.outputs, found, strict=True))
    results = {name: known[v] for name, v in graph.outputs.items()}
    return results | {f"update {i.name}": known[v] for i, v in graph.updates}


def _wide(node: Node) -> Node:
    return node.replaced(attrs={name: _widened(attr) for name, attr in node.attrs.items()})


def _widened(attr: Any) -> Any:
    if isinstance(attr, tuple):
        return tuple(_widened(part) for part in attr)
    if isinstance(attr, Body):  # of a loop
        return Body(attr.graph.rewrite(_wide))
    return DType.F64 if isinstance(attr, DType) and attr in _NARROW else attr
