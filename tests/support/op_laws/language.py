"""From an expression of the language to its value in f64: check, put sizes in, run the meanings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from op_laws.evaluation import run

from dslc.compiler.check.model import Checked, check_file
from dslc.compiler.ir.graph import Graph, Input, Value
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.passes.lower.gradient.gradients import with_gradients


def check(folder: Path, given: str, body: str, result: str = "[B]") -> Checked:
    """The model M(given) -> result with this body; raises CompileError."""
    path = folder / "m.nn"
    path.write_text(f"nn 1\ndim B in 1..64 = 4\nmodel M({given}) -> {result} {{\n{body}\n}}\n")
    return check_file(path)


def _double(dtype: DType) -> DType:
    return DType.F64 if dtype is DType.FLOAT else dtype


def in_double(graph: Graph, sizes: Mapping[str, int]) -> tuple[dict[str, Value], dict[str, Value]]:
    """Inputs and outputs by name, of a graph for these sizes with f64 for float."""
    bound = with_gradients(graph.bind(sizes))
    new: dict[Value, Value] = {}
    for old in bound.inputs:
        type = TensorType(_double(old.value.type.dtype), old.value.type.shape)
        new[old.value] = Input(old.name, old.kind, type).value
    for node in bound.nodes:
        attrs = {k: _double(v) if isinstance(v, DType) else v for k, v in node.attrs.items()}
        made = Builder(name=node.name).node(node.op, *(new[v] for v in node.inputs), **attrs)
        new.update(zip(node.outputs, made.outputs))
    return {i.name: new[i.value] for i in bound.inputs}, {name: new[v] for name, v in bound.outputs.items()}


def evaluate(checked: Checked, arrays: Mapping[str, np.ndarray], **sizes: int) -> np.ndarray:
    """The only result of a model, for these inputs and parameters."""
    inputs, outputs = in_double(checked.graph, sizes)
    [result] = [v for name, v in outputs.items() if name.startswith("result.")]
    stored = {i.name: i.stored.numbers(_double(i.value.type.dtype)) for i in checked.graph.inputs if i.stored}
    return run([result], {inputs[name]: array for name, array in (stored | dict(arrays)).items()})[0]
