"""The shapes that ``papers.record`` needs: ``PYTHONPATH=tests/support python -m papers.shapes > shapes.json``."""

from __future__ import annotations

import json
from typing import Any

from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Kind
from papers.cases import FOLDER, PAPERS


def shapes(paper: str) -> dict[str, Any]:
    """Shapes of the state's tensors; shapes and whether they hold integers of the inputs of model and train section."""
    checked = check_file(FOLDER / f"{paper}.nn")
    graph = checked.graph.bind({dim.name: dim.default for dim in checked.dims})
    own = {i.name for i in checked.model_inputs}
    data = {i.name: [i.value.type.ints, not i.value.type.dtype.is_float] for i in graph.inputs if i.kind is Kind.DATA}
    return {
        "state": {i.name: i.value.type.ints for i in graph.inputs if i.kind in (Kind.PARAM, Kind.BUFFER)},
        "inputs": {name: each for name, each in data.items() if name in own},
        "labels": {name: each for name, each in data.items() if name not in own},
    }


if __name__ == "__main__":
    print(json.dumps({paper: shapes(paper) for paper in PAPERS}))
