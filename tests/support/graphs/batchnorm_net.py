"""A small net with batch norms as the passes see it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from graphs.random_graphs import feeds_of

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Graph, Kind
from dslc.compiler.options import Options

_NET = """nn 1
dim B in 1..8 = 4
block cbr(x: [B, C, H, W], out: int, act: bool = true) -> [B, out, H, W] {
  y = x |> conv(out, 3, pad=1, bias=false) |> batchnorm
  return relu(y) if act else y
}
model Net(image: [B, 3, 8, 8]) -> [B, 5] {
  x = image |> cbr(8) as a
  y = x |> cbr(8) as b |> cbr(8, act=false) as c
  z = relu(x + y) |> cbr(8) as d
  return z |> mean(over=[2, 3]) |> linear(5) as head |> batchnorm as last
}
train Net(label: i32[B]) {
  loss = cross_entropy(output, label)
  optimizer = sgd(lr=0.1, momentum=0.9)
}
"""


def batchnorm_graph(tmp_path: Path, dtype: str) -> Graph:
    path = tmp_path / "net.nn"
    path.write_text(_NET)
    options = Options(provider="reference", precision=dtype)
    program, _ = pipeline.compile_entry(check_file(str(path)), "train_step", {"B": 4}, options, after="precision")
    return program.graph


def batchnorm_feeds(graph: Graph) -> dict[str, np.ndarray]:
    feeds = feeds_of(graph, 7)
    for source in graph.inputs:
        if source.name == "label":
            feeds[source.name] = np.arange(4) % 5
        if source.kind is Kind.BUFFER:
            feeds[source.name] = np.abs(feeds[source.name]) * 0.25
    return feeds


def image_elements(graph: Graph) -> int:
    """Elements of images that nodes read and write."""
    return sum(
        np.prod(t.ints) for n in graph.nodes for t in (*n.input_types, *n.types) if t.rank == 4 and t.ints[0] == 4
    )
