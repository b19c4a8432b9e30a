"""Channels last: the same numbers, and transposes only at the borders."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from graphs.random_graphs import evaluate, feeds_of

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Graph, Kind, Node
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.layout.channels_last import Rule, channels_last
from dslc.compiler.passes.lower.simplify.simplify import simplify_graph

_NET = """nn 1
dim B in 1..8 = 4
model Net(image: [B, 3, 12, 12]) -> [B, 5] {{
{body}
}}
train Net(label: i32[B]) {{
  loss = cross_entropy(output, label)
  optimizer = sgd(lr=0.1, momentum=0.9)
}}
"""
_BODIES = {
    "residual": """  x = image |> conv(8, 3, pad=1) as c1 |> batchnorm as b1 |> relu
  z = x |> conv(8, 3, pad=1, bias=false) as c2 |> batchnorm as b2
  s = relu(x + z)
  t = s |> maxpool(3, stride=2, pad=1) |> conv(16, 1, stride=2) as c3
  return t |> batchnorm as b3 |> relu |> mean(over=[2, 3]) |> linear(5) as head""",
    "fires": """  x = image |> conv(8, 3, pad=1) as c1 |> relu
  z = concat([relu(x |> conv(4, 1) as c2), relu(x |> conv(4, 3, pad=1) as c3)], axis=1)
  z = z |> pad([0, 1, 0, 1], value=-inf) |> maxpool(3, stride=2)
  return z[:, 2:, ::2] |> conv(8, 1) as c4 |> relu |> mean(over=[2, 3]) |> linear(5) as head""",
    "norms": """  x = image |> conv(8, 3, pad=1) as c1 |> layernorm(axis=1) as n1 |> conv(8, 3, pad=1) as c2
  return x |> rmsnorm(axis=1) as n2 |> conv(4, 3) as c3 |> relu |> mean(over=[2, 3]) |> linear(5) as head""",
    "groups": """  x = image |> conv(8, 3, pad=1) as c1 |> groupnorm(2) as n1 |> silu |> conv(6, 3, pad=1) as c2
  z = x |> instancenorm(affine=true) as n2 |> relu |> conv(6, 3, pad=1) as c3
  return concat([x, z], axis=1) |> groupnorm(3) as n3 |> relu |> mean(over=[2, 3]) |> linear(5) as head""",
    "flattened": """  x = image |> conv(4, 3) as c1 |> tanh |> avgpool(2)
  return x |> flatten |> linear(5) as head""",
    "excited": """  x = image |> conv(8, 3, pad=1, bias=false) as c1 |> batchnorm as b1 |> silu
  s = x |> mean(over=[2, 3], keep=true) |> conv(4, 1) as down |> relu |> conv(8, 1) as up |> sigmoid
  h = x |> mean(over=3, keep=true) |> conv(8, 1) as rows |> sigmoid
  return x * s * h |> conv(4, 1) as c2 |> relu |> mean(over=[2, 3]) |> linear(5) as head""",
    "shuffled": """  x = image |> conv(8, 3, pad=1) as c1 |> relu
  a, b = split(x, 2, axis=1)
  z = concat([a, relu(b |> conv(4, 3, pad=1) as c2)], axis=1) |> rearrange("B (g c) H W -> B (c g) H W", g=2)
  a, b = split(z, 2, axis=1)
  z = concat([a, relu(b |> conv(4, 1) as c3)], axis=1) |> channel_shuffle(4)
  return z |> conv(6, 3) as c4 |> relu |> mean(over=[2, 3]) |> linear(5) as head""",
    "pixels": """  x = image |> conv(8, 3, pad=1) as c1 |> relu |> pixel_shuffle(2) |> conv(3, 3, pad=1) as c2
  z = x |> relu |> pixel_unshuffle(3) |> conv(4, 3, pad=1) as c3
  return z |> relu |> mean(over=[2, 3]) |> linear(5) as head""",
    "windows": """  x = image |> conv(8, 3, pad=1) as c1 |> relu
  z = x |> rearrange("B C (h p) (w q) -> (B h w) C p q", p=4, q=4)
  z = z |> conv(6, 3, pad=1) as c2 |> relu |> rearrange("(B h w) C p q -> B C (h p) (w q)", h=3, w=3)
  return z |> conv(4, 1) as c3 |> relu |> mean(over=[2, 3]) |> linear(5) as head""",
    "tokens": """  x = image |> conv(8, 3, pad=1) as c1 |> relu
  z = x |> rearrange("B C (h p) (w q) -> B (h w) (p q C)", p=4, q=4)
  return z |> linear(6) as up |> relu |> mean(over=1) |> linear(5) as head""",
    "one channel": """  x = image |> conv(4, 3, pad=1) as c1 |> relu |> rearrange("B (g c) H W -> B (c g) H W", g=1)
  z = x |> conv(1, 1) as c2 |> rearrange("B C (h p) W -> B (C p) h W", p=2)
  return z |> conv(4, 1) as c3 |> relu |> mean(over=[2, 3]) |> linear(5) as head""",
    "joined": """  x = image |> conv(8, 3, pad=1) as c1 |> relu
  z = concat([x, image], axis=1) |> conv(4, 3, pad=1) as c2
  return z |> dropout(0.3) |> mean(over=[2, 3]) |> linear(5) as head""",
}


def _graph(tmp_path: Path, body: str, dtype: str) -> Graph:
    path = tmp_path / "net.nn"
    path.write_text(_NET.format(body=body))
    checked = check_file(str(path))
    program, _ = pipeline.compile_entry(
        checked, "train_step", {"B": 4}, Options(provider="reference", precision=dtype), after="precision"
    )
    return program.graph


@pytest.mark.parametrize("name", _BODIES)
def test_a_training_step_computes_the_same(name: str, tmp_path: Path) -> None:
    graph = _graph(tmp_path, _BODIES[name], "f64")
    turned = simplify_graph(channels_last(graph, Rule(lambda node: True)))
    verify_graph(turned)
    feeds = feeds_of(graph, 3)
    for source in graph.inputs:
        if source.name == "label":
            feeds[source.name] = np.arange(4) % 5
        if source.kind is Kind.BUFFER:
            feeds[source.name] = np.abs(feeds[source.name]) + 0.5
    wanted, got = evaluate(graph, feeds), evaluate(turned, feeds)
    assert wanted.keys() == got.keys() and len(wanted) > 8
    for key, value in wanted.items():
        np.testing.assert_allclose(got[key], value, rtol=1e-9, atol=1e-11, err_msg=key)


def _moved(graph: Graph) -> Counter[str]:
    """What is transposed, by the kind of tensor."""
    found: Counter[str] = Counter()
    for node in graph.nodes:
        if node.op.name == "transpose" and node.types[0].rank == 4:
            made = node.inputs[0].producer
            found["image" if node.types[0].shape[0] == 4 and not _is_weight(node) else "weight"] += 1
            assert made is not None
    return found


def _is_weight(node: Node) -> bool:
    made = node.inputs[0].producer
    return made.name.endswith("weight") or (isinstance(made, Node) and made.op.name == "conv_wgrad_last")


@pytest.mark.parametrize("name", ["residual", "fires", "norms", "groups", "excited", "shuffled", "pixels"])
def test_images_are_turned_once(name: str, tmp_path: Path) -> None:
    """The net's image comes in with channels first and no tensor of a block is transposed back."""
    graph = _graph(tmp_path, _BODIES[name], "f64")
    turned = simplify_graph(channels_last(graph, Rule(lambda node: True)))
    assert _moved(turned)["image"] == 1
    assert not any(n.op.name in ("conv", "batchnorm", "groupnorm", "maxpool", "conv_dgrad") for n in turned.nodes)


def test_what_is_not_wanted_stays(tmp_path: Path) -> None:
    graph = _graph(tmp_path, _BODIES["residual"], "f32")
    assert channels_last(graph, Rule(lambda node: False)) is graph
