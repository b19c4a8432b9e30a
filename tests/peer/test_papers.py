"""Models of papers of 2022 to 2024 agree with PyTorch: outputs, loss and gradients.

tests/papers/recorded.json holds summaries of what PyTorch computes, so torch is needed only to record them again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from papers.cases import FOLDER, PAPERS, RATE, RECORDED, errors, given, parameter
from thinning import thinned

import dslc
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build
from dslc.runtime.artifact.dtypes import numpy_dtype

WANTED = json.loads(RECORDED.read_text(encoding="utf-8"))


def test_each_paper_is_recorded() -> None:
    assert set(WANTED) == set(PAPERS)


@pytest.mark.parametrize(("paper",), thinned(PAPERS, 4))
def test_the_meaning_in_f64(paper: str, tmp_path: Path) -> None:
    outputs, loss, gradients = run(paper, Options(provider="reference", precision="f64"), tmp_path)
    wanted = WANTED[paper]
    assert max(errors(outputs, dict(enumerate(wanted["outputs"]))).values()) < 1e-9
    assert loss == pytest.approx(wanted["loss"], rel=1e-9)
    assert max(errors(gradients, wanted["gradients"]).values()) < 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_kernels_in_f32(paper: str, tmp_path: Path) -> None:
    outputs, loss, gradients = run(paper, Options(), tmp_path)
    wanted = WANTED[paper]
    assert max(errors(outputs, dict(enumerate(wanted["outputs"]))).values()) < 2e-5
    assert loss == pytest.approx(wanted["loss"], rel=1e-5)
    assert max(errors(gradients, wanted["gradients"]).values()) < 1e-2  # a gradient is the difference of f32 parameters


def run(paper: str, options: Options, folder: Path) -> tuple[dict[Any, NDArray[Any]], float, dict[str, NDArray[Any]]]:
    """Outputs by number, the loss, and the gradients of one step of sgd."""
    result = build(check_file(FOLDER / f"{paper}.nn"), options)
    path = folder / f"{result.name}.dslc"
    path.write_bytes(result.artifact)
    with dslc.load(path, device="cpu", weights="init") as session:
        before = session.state_tensors()
        state = {
            n: parameter(paper, n, x.shape).astype(x.dtype) if x.dtype.kind == "f" else x for n, x in before.items()
        }
        session.restore(state, 0)
        interface = session.artifact.header["interface"]
        sizes = {dim["name"]: dim["default"] for dim in interface["dims"]}
        x, y = (drawn(paper, each["inputs"], sizes) for each in (interface, interface["train"]))
        predicted = session.predict(**x)
        outputs = dict(enumerate(predicted if isinstance(predicted, tuple) else (predicted,)))
        loss = float(session.train_step(**x, **y).loss)
        after = session.state_tensors()
    return outputs, loss, {n: (state[n].astype(np.float64) - after[n]) / RATE for n in WANTED[paper]["gradients"]}


def drawn(paper: str, ports: list[Mapping[str, Any]], sizes: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    found = {}
    for port in ports:
        shape, dtype = [sizes.get(n, n) for n in port["shape"]], numpy_dtype(port["dtype"])
        found[port["name"]] = given(paper, port["name"], shape, dtype.kind == "i").astype(dtype)
    return found
