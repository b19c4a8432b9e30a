"""Random training steps: layers, pointwise ops, norms, dropout, shortcuts, views."""

from __future__ import annotations

import random
from collections.abc import Sequence

from graphs.random_graphs import UNARY, feeds_of, graph_of, input_of

from dslc.compiler.ir.graph import Graph, Input, Kind, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.passes.lower.gradient.differentiate import differentiate

B = Builder(name="a")


def linear_of(x: Value, w: Input) -> Value:
    return B(OPS["matmul"], x, w.value, transpose_a=False, transpose_b=False)


def training_of(inputs: list[Input], result: Value, wrt: Sequence[Input]) -> Graph:
    """The gradients of the mean of a result, as outputs."""
    loss = B(OPS["mean"], result, over=tuple(range(result.type.rank)), keep=False)
    graph = graph_of(inputs, {"loss": loss})
    found = differentiate(graph, loss, [i.value for i in wrt])
    return graph_of(
        inputs, {"result.loss": loss, **{f"result.d_{i.name}": found[i.value] for i in wrt if i.value in found}}
    )


def random_training(rng: random.Random, size: int) -> Graph:
    """A net of rows: layers, pointwise ops, norms, dropout, shortcuts, views, in any order."""
    rows, width = rng.choice([(4, 8), (16, 4), (32, 16)])
    x = input_of("x", Kind.DATA, rows, width)
    scalars = [Input(n, Kind.SCALAR, TensorType(DType.I64, ())) for n in ("seed", "step", "row")]
    inputs, params = [x, *scalars], []

    def param(*shape: int) -> Input:
        params.append(input_of(f"w{len(params)}", Kind.PARAM, *shape))
        inputs.append(params[-1])
        return params[-1]

    values = [linear_of(x.value, param(width, width))]
    for number in range(size):
        b = Builder(name=f"n{number}")
        value = values[-1]
        match rng.randrange(12):
            case 0 | 1:
                new = linear_of(value, param(width, width))
            case 2 | 3:
                new = b(OPS[rng.choice(UNARY)], value)
            case 4:
                new = b(OPS["add"], value, rng.choice(values))
            case 5:
                new = b(OPS["mul"], value, rng.choice(values))
            case 6:
                new = b(OPS["add"], value, param(width).value)
            case 7:
                more = {"p": 0.3, "key": number, "row_elements": width}
                new = b(OPS["dropout"], value, *(s.value for s in scalars), **more)
            case 8:
                weight, bias = param(width).value, param(width).value
                new = b.node(OPS["layernorm"], value, weight, bias, axis=1, eps=1e-5).outputs[0]
            case 9:
                new = b(OPS["softmax"], value, axis=1)
            case 10:
                turned = b(OPS["reshape"], b(OPS["transpose"], value, perm=(1, 0)), shape=(rows, width))
                new = b(OPS["tanh"], turned)
            case _:
                both = b(OPS["concat"], value, rng.choice(values), axis=1)
                new = b(OPS["slice"], both, starts=(0, 3), stops=(rows, 3 + width), steps=(1, 1))
        values.append(new)
    return training_of(inputs, values[-1], params)


def training_feeds(graph: Graph, seed: int) -> dict[str, object]:
    return feeds_of(graph, seed) | {
        i.name: feeds_of(graph, 1)[i.name] * 0 + 3 for i in graph.inputs if i.kind is Kind.SCALAR
    }
