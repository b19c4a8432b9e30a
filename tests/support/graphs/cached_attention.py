"""A model whose attention reads a cache, as generation does, after any pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Body, Node
from dslc.compiler.ir.program import Program
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry

#: Attention to a cache: heads of q in groups if there are fewer heads of k; {put} writes what is kept.
MODEL = """\
nn 1
dim B in 1..4 = 1
dim T in 1..300 = 1
const C = 320

block attend(x: [B, T, D], at: i32[]) -> [B, T, D] {{
  q = linear(x, 64, bias=false) |> rearrange("B T (h d) -> B h T d", h=8)
  k, v = linear(x, {kept}) |> rearrange("B T (two h d) -> two B T h d", two=2, d=8)
  state keys: [C, B, {heads}, 8] = 0
  state values: [C, B, {heads}, 8] = 0
  places = at + arange(T)
  {put}
  seen = arange(C) <= reshape(places, [T, 1])
  y = sdpa(q, rearrange(keys, "C B h d -> B h C d"), rearrange(values, "C B h d -> B h C d"), mask=seen)
  return y |> rearrange("B h T d -> B T (h d)") |> linear(D)
}}

model M(x: [B, T, 24]) -> [B, T, 24] {{
  state at: i32[] = 0
  x = x + (attend(x, at) as one)
  x = x + (attend(x, at) as two)
  at = at + T
  return x
}}
"""
PUT = """keys = index_put(keys, [places], rearrange(k, "B T h d -> T B h d"))
  values = index_put(values, [places], rearrange(v, "B T h d -> T B h d"))"""


def compiled(
    folder: Path, *, precision: str = "bf16", heads: int = 8, rows: int = 1, tokens: int = 1, put: str = PUT,
    target: str = "sm_90", after: str | None = None, fuse: bool = True,
) -> Program:  # fmt: skip
    (folder / "m.nn").write_text(MODEL.format(put=put, heads=heads, kept=16 * heads))
    options = Options(target=target, provider="own", precision=precision, fuse=fuse)
    with chdir(folder):  # so that its name does not depend on the folder
        checked = check_file("m.nn")
    return compile_entry(checked, "predict", {"B": rows, "T": tokens}, options, after=after)[0]


def ops(program: Program) -> Counter[str]:
    return Counter(node.op.name for node in nodes(program) if not node.op.view)


def nodes(program: Program) -> Iterator[Node]:
    """The nodes of the graph, and of the bodies of chains instead of chains."""
    for node in program.graph.nodes:
        if node.op.name == "chain":
            body = node.attrs["body"]
            assert isinstance(body, Body)
            yield from body.graph.nodes
        else:
            yield node
