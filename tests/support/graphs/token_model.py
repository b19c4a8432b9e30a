"""A small GPT-2 that reads a token, as generation does; values of the bodies of chains, by what their nodes mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from gpu_kernels import simulator
from places import ROOT

from dslc.compiler.check.model import check_file
from dslc.compiler.ir.bodies.chain import chained
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.compound.contraction import product_and_epilogue
from dslc.compiler.ops.compound.fused import expanded
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry

CONTEXT = 20


def compiled(
    folder: Path, *, precision: str = "f32", layers: int = 1, width: int = 16, rows: int = 1, tokens: int = 1,
    target: str = "sm_90", after: str | None = None, provider: str = "own", vocabulary: int = 20,
) -> Program:  # fmt: skip
    text = (ROOT / "examples/gpt/writer.nn").read_text().replace("CONTEXT = 1024", f"CONTEXT = {CONTEXT}")
    (folder / "w.nn").write_text(text)
    args = {"layers": str(layers), "heads": "2", "d": str(width), "vocab": str(vocabulary)}
    options = Options(target=target, provider=provider, precision=precision)
    checked = check_file(folder / "w.nn", args=args)
    return compile_entry(checked, "predict", {"B": rows, "T": tokens}, options, after=after)[0]


def chain_of(program: Program) -> Node:
    """Its only chain."""
    [node] = [node for node in program.graph.nodes if node.op.name == "chain"]
    return node


def inputs_of(node: Node, at: int, seed: int = 1) -> list[np.ndarray]:
    """Of a chain: position ``at``, whose mask allows what is before it."""
    rng = np.random.default_rng(seed)
    found = []
    for type in node.input_types:
        if type.dtype is DType.I32:
            found.append(np.full(type.ints, at, np.int32))
        elif type.dtype is DType.B1:
            found.append(np.arange(CONTEXT)[None] <= at)
        else:
            found.append(simulator.held(rng.normal(size=type.ints).astype("f4"), type.dtype))
    return found


def meant(node: Node, xs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What a chain means, with values of its nodes rounded to their dtypes, 16-bit floats as f32."""
    graph = chained(node.attrs)
    known = dict(zip((source.value for source in graph.inputs), xs, strict=True))
    for each in graph.nodes:
        known.update(zip(each.outputs, _values(each, [known[v] for v in each.inputs])))
    return [known[v] for v in graph.outputs.values()]


def _values(node: Node, xs: list[np.ndarray]) -> list[np.ndarray]:
    if node.op.name == "contraction":
        first, last = product_and_epilogue(node)
        [product] = first.op.meaning(xs[:2], first.attrs)
        known = dict(zip(last.inputs, [product, *xs[2:]]))
        steps = expanded(last.inputs, last.attrs)
        for step in steps:
            given = [known[v] for v in step.inputs]
            known[step.out] = given[0] if step.op.name == "cast" else step.op.meaning(given, step.attrs)[0]
        return [simulator.held(np.asarray(known[steps[-1].out], "f4"), node.types[0].dtype)]
    attrs = {**node.attrs, "dtype": "f32"} if node.op.name == "few_queries_sdpa" else node.attrs
    return [simulator.held(np.asarray(y, "f4"), t.dtype) for y, t in zip(node.op.meaning(xs, attrs), node.types)]
