"""Names and shapes of the weights of published models, and of their counterparts in examples/models."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from places import EXAMPLES, ROOT

from dslc.compiler.check.model import check_file
from published.cases import Case

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Shaped:
    shape: Shape
    dtype: str = "f32"


@cache
def recorded(family: str) -> Mapping[str, Mapping[str, Shaped]]:
    """The shapes of each recorded model's weights, by names of the model and of the weight."""
    found: dict[str, dict[str, Shaped]] = {}
    with (ROOT / f"tests/published/{family}.csv").open(encoding="utf-8", newline="") as file:
        for model, weight, shape in csv.reader(file):
            found.setdefault(model, {})[weight] = Shaped(tuple(int(n) for n in shape.split("x") if n))
    return found


@cache
def expected(file: str, model: str, args: tuple[tuple[str, str], ...]) -> Mapping[str, Shape]:
    """The shapes of a model's weights and running statistics by name."""
    checked = check_file(EXAMPLES / file, model, dict(args))
    return {name: info.input.value.type.ints for name, info in checked.params.items()}


def wanted(case: Case) -> Mapping[str, Shape]:
    file, _, model = case.model.partition(":")
    return expected(f"models/{file}.nn", model, tuple(case.args.items()))
