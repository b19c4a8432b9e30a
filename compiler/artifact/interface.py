"""The interface that an artifact promises its callers: dims, inputs, results, the train section, as data for the
header."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dslc.compiler.check.entries import train_spec
from dslc.compiler.check.model import Checked
from dslc.compiler.ir.build import Precision
from dslc.compiler.ir.graph import Input, Node, Value
from dslc.compiler.ir.scan import body_of, consts_of, scan
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType, TensorType


def interface(checked: Checked, name: str, precision: Precision) -> dict[str, Any]:
    """The header's ``interface`` (docs/artifact.md). Float inputs and results are f32, or f64 if f64 is computed."""
    boundary = precision.boundary
    ranges, limits = integer_ranges(checked), _limits(checked)
    results = {n: checked.graph.outputs[f"result.{n}"].type for n in checked.results}
    data: dict[str, Any] = {
        "name": name,
        "model": checked.name,
        "dims": [
            {"name": d.name, "low": d.low, "high": d.high, "default": d.default}
            | ({"batch": True} if d == checked.batch else {})
            for d in checked.dims
        ],
        "inputs": [_tensor(i.name, i.value.type, boundary) for i in checked.model_inputs],
        "results": [_tensor(n, t, boundary) for n, t in results.items()],
        "train": None,
    }
    if checked.states:
        data["states"] = [
            _tensor(name, state.input.value.type, precision.params) | {"start": state.start}
            for name, state in sorted(checked.states.items())
        ]
    mine = {i.name for i in checked.model_inputs}
    data["ranges"] = {n: r for n, r in ranges.items() if n in mine}
    if own := {n: sizes for n, sizes in limits.items() if n in mine}:
        data["limits"] = own
    train = checked.train
    if train is not None:
        data["train"] = {
            "inputs": [_tensor(n, _input(checked, n).value.type, boundary) for n in train.inputs],
            "scalars": [{"name": n, "default": v} for n, v in train.scalars.items()],
            "lr": float(train.updates[0].optimizer_args["lr"]),
            "metrics": list(train.metrics),
            "ranges": {n: r for n, r in ranges.items() if n not in mine},
        }
        if own := {n: sizes for n, sizes in limits.items() if n not in mine}:
            data["train"]["limits"] = own
        spec = train_spec(checked, precision.loss_scale)
        if train.accumulate > 1:
            data["train"]["accumulate"] = train.accumulate
        if train.shards > 1:
            data["train"]["shards"] = train.shards
            if spec is not None and spec.slice_reads and precision.params.itemsize == precision.shared.itemsize:
                data["train"]["update"] = spec.slice_reads
        if spec is not None and spec.turns:
            data["train"]["turns"] = list(spec.turns)
        if train.epoch_metrics:
            data["train"]["epoch_metrics"] = list(train.epoch_metrics)
    return data


def _input(checked: Checked, name: str) -> Input:
    return next(i for i in checked.graph.inputs if i.name == name)


def _tensor(name: str, type: TensorType, boundary: DType) -> dict[str, Any]:
    dtype = boundary if type.dtype is DType.FLOAT else type.dtype
    return {"name": name, "dtype": dtype.value, "shape": [_size(s) for s in type.shape]}


def _size(size: Size) -> int | str:
    return size if isinstance(size, int) else str(size)


def integer_ranges(checked: Checked) -> dict[str, list[int]]:
    """Integer inputs that are used as indices, with the range [low, high) of their values."""
    found: dict[str, list[int]] = {}
    for name, (low, high) in _indices(checked):
        if isinstance(high, int):
            least, most = found.get(name, [low, high])
            found[name] = [max(least, low), min(most, high)]
    return found


def _limits(checked: Checked) -> dict[str, list[str]]:
    """Integer inputs that are used as indices of axes with dims: the sizes of these axes."""
    found: dict[str, list[str]] = {}
    for name, (low, high) in _indices(checked):
        if not isinstance(high, int) and low == 0 and str(high) not in found.setdefault(name, []):
            found[name].append(str(high))
    return {name: sizes for name, sizes in found.items() if sizes}


def _indices(checked: Checked) -> Iterator[tuple[str, tuple[int, Size]]]:
    """For each use of an integer input as an index, its name and the range [low, high) of its values."""
    return _uses(checked.graph.nodes, {i.value: i.name for i in checked.graph.inputs})


def _uses(nodes: Sequence[Node], inputs: Mapping[Value, str]) -> Iterator[tuple[str, tuple[int, Size]]]:
    for node in nodes:
        names = [inputs.get(_origin(value)) for value in node.inputs]
        for i, (value, name) in enumerate(zip(node.inputs, names)):
            allowed = node.op.index_range(node, i) if name is not None and value.type.dtype.is_int else None
            if name is not None and allowed is not None:
                yield name, allowed
        if node.op is scan:  # of what a loop carries, only the first value is that of an input
            body, consts = body_of(node.attrs), consts_of(node.attrs)
            sequences = consts + len(body.updates)
            read = [*zip(body.inputs, names)][:consts] + [*zip(body.inputs, names)][sequences:]
            yield from _uses(body.nodes, {i.value: name for i, name in read if name is not None})


def _origin(value: Value) -> Value:
    """The tensor whose elements, all of them and unchanged, ``value`` holds in another shape or in a wider dtype."""
    node = value.producer
    while isinstance(node, Node) and _keeps_numbers(node):
        value = node.inputs[0]
        node = value.producer
    return value


def _keeps_numbers(node: Node) -> bool:
    if node.op.name == "cast":
        (old,), new = node.input_types, node.types[0]
        if not (old.dtype.is_int and new.dtype.is_int):
            return False
        (low, high), (least, most) = new.dtype.limits, old.dtype.limits
        return low <= least and most <= high
    return node.op.name in ("reshape", "transpose", "expand")
