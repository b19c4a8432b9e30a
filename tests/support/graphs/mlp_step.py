"""Training steps of deep nets, and the bytes of plans of random graphs."""

from __future__ import annotations

import random

from graphs.random_graphs import build_for, graph_of, input_of, random_graph
from graphs.train_specs import one_update

from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.ir.build import Build, ParamSpec
from dslc.compiler.ir.graph import Graph, Input, Kind
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse
from dslc.compiler.passes.lower.dtypes.precision import precision
from dslc.compiler.passes.lower.gradient.autodiff import autodiff
from dslc.compiler.passes.lower.simplify.simplify import simplify
from dslc.compiler.passes.plan.memory import memory
from dslc.compiler.passes.plan.schedule import schedule
from dslc.compiler.passes.runner import run_passes

#: The passes that every graph needs.
ALL = (autodiff, precision, simplify, fuse, schedule, memory)


def plan_bytes() -> bytes:
    found = b""
    for seed in range(10):
        graph = random_graph(random.Random(seed), 60)
        program, _ = run_passes(Program("predict", {}, graph), build_for(graph), ALL)
        found += plan_of(program).encode() + format_graph(program.graph).encode()
    return found


def mlp_step(layers: int, width: int = 2) -> tuple[Graph, Build]:
    """A training step of a deep net, in the checker's abstract float, with sgd's slots."""
    x = input_of("x", Kind.DATA, 1, width, dtype=DType.FLOAT)
    inputs, specs = [x], []
    value = x.value
    for i in range(layers):
        b = Builder(name=f"layer.{i}")
        leaves: list[Input] = []
        for leaf, shape in (("weight", (width, width)), ("bias", (width,))):
            leaves.append(input_of(f"layer.{i}.{leaf}", Kind.PARAM, *shape, dtype=DType.FLOAT))
            slot = input_of(f"layer.{i}.{leaf}.momentum_buffer", Kind.OPTIMIZER, *shape, dtype=DType.FLOAT)
            inputs += [leaves[-1], slot]
            specs.append(ParamSpec(leaves[-1].name))
        product = b(OPS["matmul"], value, leaves[0].value, transpose_a=False, transpose_b=True)
        value = b(OPS["relu"], b(OPS["add"], product, leaves[1].value))
    loss = Builder(name="loss")(OPS["mean"], value, over=(0, 1), keep=False)
    train = one_update("sgd", {"momentum": 0.9, "nesterov": False}, specs)
    graph = graph_of(inputs, {"loss": loss})
    return graph, build_for(graph, train=train)
