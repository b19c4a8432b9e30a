"""Examples on the pages of functions, as models: each is built, run and trained like any other model."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dslc.compiler.check.model import Checked, check_file
from dslc.compiler.ir.function import Function
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ops.packages.find import Package

_ASSIGNED = re.compile(r"(\w+(?:, *\w+)*) = ")
_GIVEN = re.compile(r"(\w+): *((?:\w+)?\[[^\]]*\])")
#: Appended to an input's name: what the model takes, and the parameter whose gradient is the input's.
TAKEN, STEP = "_given", "_step"


@dataclass(frozen=True)
class Case:
    """One tensor of an example. ``checked``: a model with the tensor as its result, for which each float input ``x`` is
    ``x_given - x_step`` with a parameter that starts at 0, so a step of the optimizer reveals the gradient of ``x``."""

    function: str
    shown: str
    checked: Checked


def cases(package: Package, folder: Path) -> Iterator[Case]:
    """The cases of all functions, one after the other in ``folder``. Raises CompileError for an example that is
    wrong."""
    for function in package.functions.values():
        given, lines = _example(function)
        statements: list[str] = []
        for line in lines:
            assigned = _ASSIGNED.match(line)
            if assigned:
                statements.append(line)
            for shown in assigned[1].split(",") if assigned else [line]:
                yield _case(package, function, given, statements, shown.strip(), folder)


def _example(function: Function) -> tuple[str, list[str]]:
    """The tensors of the page's line ``given:``, and the lines after ``>>>``."""
    page = (inspect.getdoc(function) or "").splitlines()
    given = [line.removeprefix("given:").strip() for line in page if line.startswith("given:")]
    return ", ".join(given), [line.removeprefix(">>> ") for line in page if line.startswith(">>> ")]


def _case(package: Package, function: Function, given: str, statements: list[str], shown: str, folder: Path) -> Case:
    head = f'nn 1\nuse "entry:{package.entry}" ({", ".join(package.functions)})\ndim B = 3\n'
    body = "".join(f"  {line}\n" for line in statements)
    scalar = f'{head}model Law({given}) -> [] {{\n{body}  return mean(cast({shown}, "float"))\n}}\n'
    type = _type_of(_checked(folder, scalar).graph.outputs)
    taken, steps = [], ""
    for name, kind in _GIVEN.findall(given):
        if kind.startswith("["):
            taken.append(f"{name}{TAKEN}: {kind}")
            steps += f"  param {name}{STEP}: {kind} = zeros\n  {name} = {name}{TAKEN} - {name}{STEP}\n"
        else:
            taken.append(f"{name}: {kind}")
    text = f"{head}model Law({', '.join(taken)}) -> {type} {{\n{steps}{body}  return {shown}\n}}\n"
    if steps and type.startswith("["):
        text += f"train Law(slope: {type}) {{\n  loss = sum(output * slope)\n  optimizer = sgd(lr=1.0)\n}}\n"
    return Case(function.name, shown, _checked(folder, text))


def _checked(folder: Path, text: str) -> Checked:
    path = folder / "law.nn"
    path.write_text(text, encoding="utf-8")
    return check_file(path)


def _type_of(outputs: Mapping[str, Value]) -> str:
    """The type, as text of the language, of the tensor whose mean is the only output."""
    [mean] = [value.producer for value in outputs.values()]
    assert isinstance(mean, Node) and mean.op.name == "mean"
    [value] = mean.inputs
    if isinstance(value.producer, Node) and value.producer.op.name == "cast":
        [value] = value.producer.inputs
    return str(value.type).removeprefix("float")
