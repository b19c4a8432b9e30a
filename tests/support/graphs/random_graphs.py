"""Random graphs of registered ops, and their values by the ops' numpy meanings: what passes are held against."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Phase, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops import registry
from dslc.compiler.passes.lower.simplify.simplify import plain
from dslc.runtime.artifact.dtypes import numpy_dtype

registry.load_all()

UNARY = ("neg", "abs", "exp", "tanh", "sigmoid", "relu", "sin", "cos", "floor", "sign", "stop_gradient")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")


def input_of(name: str, kind: Kind, *shape: int, dtype: DType = DType.F32) -> Input:
    return Input(name, kind, TensorType(dtype, shape))


def graph_of(
    inputs: list[Input], outputs: Mapping[str, Value], updates: list[tuple[Input, Value]] | None = None
) -> Graph:
    roots = [*outputs.values(), *(v for _, v in updates or [])]
    return Graph(tuple(inputs), order(roots), dict(outputs), tuple(updates or []))


def random_graph(rng: random.Random, nodes: int, dtype: DType = DType.F32) -> Graph:
    """Data inputs, states with updates (also state to state), results; shapes that broadcast; a few constants."""
    rows, columns = rng.choice([(1, 1), (2, 3), (4, 4), (3, 1), (7, 5)])
    shapes = [(rows, columns), (1, columns), (columns,), (), (rows, 1), (columns, rows)]
    inputs = [input_of(f"x{i}", Kind.DATA, *rng.choice(shapes), dtype=dtype) for i in range(3)]
    inputs += [
        input_of(f"w{i}", rng.choice([Kind.PARAM, Kind.BUFFER]), *rng.choice(shapes), dtype=dtype) for i in range(4)
    ]
    inputs.append(Input("lr", Kind.SCALAR, TensorType(dtype, ())))
    values = [i.value for i in inputs]
    for number in range(nodes):
        b = Builder(name=f"n{number}", phase=rng.choice([Phase.FORWARD] * 8 + [Phase.BACKWARD, Phase.UPDATE]))
        made = _random_node(rng, b, values[-12:] if rng.random() < 0.7 else values, dtype)
        if made is not None:
            values += made.outputs
    computed = [v for v in values if v.type.dtype is dtype]
    outputs = {f"result.r{i}": rng.choice(computed) for i in range(rng.randint(1, 3))}
    updates = []
    for state in inputs:
        fitting = [v for v in computed if v.type == state.value.type]
        if state.kind in (Kind.PARAM, Kind.BUFFER) and rng.random() < 0.8:
            updates.append((state, rng.choice(fitting[-6:])))
    return graph_of(inputs, outputs, updates)


def _random_node(rng: random.Random, b: Builder, values: list[Value], dtype: DType) -> Node | None:
    x, y = rng.choice(values), rng.choice(values)
    shape = x.type.ints
    match rng.randrange(14):
        case 0 | 1 | 2:
            return b.node(OPS[rng.choice(UNARY)], x) if x.type.dtype is dtype else None
        case 3 | 4 | 5 | 6:
            return _binary(b, rng.choice(BINARY), x, y) if x.type.dtype is y.type.dtype is dtype else None
        case 7:
            value = rng.choice([0.0, -0.0, 1.0, -1.0, 2.5])
            constant = b(OPS["full"], value=value, dtype=dtype, shape=rng.choice([(), shape]))
            return _binary(b, rng.choice(BINARY), x, constant) if x.type.dtype is dtype else None
        case 8:
            return b.node(OPS["transpose"], x, perm=tuple(reversed(range(len(shape)))))
        case 9:
            return b.node(OPS["reshape"], x, shape=rng.choice([shape, tuple(reversed(shape)), (x.type.elements,)]))
        case 10 if shape:
            op = rng.choice(["sum", "mean", "max"])
            return b.node(OPS[op], x, over=(len(shape) - 1,), keep=True) if x.type.dtype is dtype else None
        case 11:
            compared = _binary(b, "lt", x, y) if x.type.dtype is y.type.dtype is dtype else None
            if compared is None:
                return None
            return b.node(OPS["where"], compared.out, *(_fitted(b, v, compared.out) for v in (x, y)))
        case 12:
            return b.node(OPS["cast"], x, dtype=rng.choice([DType.F32, DType.F64, dtype]))
        case 13 if shape == y.type.ints and shape and x.type.dtype is y.type.dtype:
            return b.node(OPS["concat"], x, y, axis=0)
    return None


def _fitted(b: Builder, value: Value, like: Value) -> Value:
    return value if value.type.shape == like.type.shape else b(OPS["expand"], value, shape=like.type.shape)


def _binary(b: Builder, op: str, x: Value, y: Value) -> Node | None:
    a, c = x.type.ints, y.type.ints
    if any(m != n and 1 not in (m, n) for m, n in zip(reversed(a), reversed(c))):
        return None
    return b.node(OPS[op], x, y)


def feeds_of(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    feeds = {}
    for source in graph.inputs:
        dtype = numpy_dtype(source.value.type.dtype.value)
        feeds[source.name] = np.asarray(rng.uniform(-2, 2, source.value.type.ints)).astype(dtype)
    return feeds


def evaluate(graph: Graph, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs by name, and updates as ``update NAME``."""
    known = {i.value: feeds[i.name] for i in graph.inputs}
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            results = node.op.meaning([known[v] for v in node.inputs], plain(node.attrs))
            for value, result in zip(node.outputs, results):
                assert result.shape == value.type.ints and result.dtype == numpy_dtype(value.type.dtype.value), node
                known[value] = result
    found = {name: known[v] for name, v in graph.outputs.items()}
    return found | {f"update {i.name}": known[v] for i, v in graph.updates}


def assert_same_bits(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype and a[name].shape == b[name].shape, name
        assert a[name].tobytes() == b[name].tobytes() or _equal_but_for_nan(a[name], b[name]), f"{name} differs"


def _equal_but_for_nan(a: np.ndarray, b: np.ndarray) -> bool:
    """nan has many bit patterns, and which one comes out is the machine's affair; everything else must be equal."""
    if a.dtype.kind != "f" or not (np.isnan(a) == np.isnan(b)).all():
        return False
    keep = ~np.isnan(a)
    return a[keep].tobytes() == b[keep].tobytes()


def build_for(graph: Graph, **options: object) -> Build:
    """A build whose state region holds the states of this graph."""
    offset = 0
    places = {}
    for source in graph.inputs:
        if source.kind not in (Kind.DATA, Kind.SCALAR):
            places[source.name] = offset
            offset += -(-source.value.type.bytes // 64) * 64
    return Build(state=places, state_bytes=offset, **options)  # type: ignore[arg-type]
