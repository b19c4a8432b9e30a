"""Models of papers, most of 2022 to 2026, agree with PyTorch: outputs, loss and gradients.

tests/papers/recorded.json holds summaries of what PyTorch computes, so torch is needed only to record them again, and
for `python -m papers.compare`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from thinning import thinned

from papers.cases import PAPERS, RECORDED, errors
from papers.compare import build_one, ours, row, table
from papers.shapes import shapes

WANTED = json.loads(RECORDED.read_text(encoding="utf-8"))


def test_each_paper_is_recorded() -> None:
    assert set(WANTED) == set(PAPERS)


@pytest.mark.parametrize(("paper",), thinned(PAPERS, 4))
def test_the_meaning_in_f64(paper: str, tmp_path: Path) -> None:
    outputs, loss, gradients = run(paper, "f64", "reference", tmp_path)
    wanted = WANTED[paper]
    assert max(errors(outputs, wanted_outputs(paper)).values()) < 1e-9
    assert loss == pytest.approx(wanted["loss"], rel=1e-9)
    assert max(errors(gradients, wanted["gradients"]).values()) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_kernels_in_f32(paper: str, tmp_path: Path) -> None:
    outputs, loss, gradients = run(paper, "f32", "auto", tmp_path)
    wanted = WANTED[paper]
    assert max(errors(outputs, wanted_outputs(paper)).values()) < 2e-5
    assert loss == pytest.approx(wanted["loss"], rel=1e-5)
    assert max(errors(gradients, wanted["gradients"]).values()) < 1e-4


def run(
    paper: str, dtype: str, provider: str, folder: Path
) -> tuple[dict[str, NDArray[Any]], float, dict[str, NDArray[Any]]]:
    """Outputs, the loss, and the gradients of one step of sgd."""
    build_one(paper, dtype, "cpu", provider, folder / "net.dslc")
    found = ours(paper, shapes(paper), folder / "net.dslc", "cpu")
    gradients = {n: found[f"gradient {n}"] for n in WANTED[paper]["gradients"]}
    return {n: x for n, x in found.items() if n.startswith("output")}, float(found["loss"]), gradients


def wanted_outputs(paper: str) -> dict[str, Any]:
    return {f"output {i}": each for i, each in enumerate(WANTED[paper]["outputs"])}


def test_a_row_of_the_comparison_marks_what_is_further_away_than_pytorch() -> None:
    rng = np.random.default_rng(0)
    wanted = {name: rng.normal(size=20) for name in ("output 0", "gradient a", "gradient b", "gradient c")}
    wanted["loss"] = np.asarray(2.0)

    def off(by: float, *names: str) -> dict[str, NDArray[Any]]:
        return {n: x * (1 + by) if n in names or not names else x for n, x in wanted.items()}

    theirs = off(0.02)
    near = row("p", "bf16", off(0.05), theirs, wanted)
    assert near["passed"] and near["output"] == pytest.approx(0.05) and near["torch output"] == pytest.approx(0.02)
    for name in ("output 0", "loss", "gradient b"):
        far = row("p", "bf16", off(0.2, name), theirs, wanted)
        assert not far["passed"] and far["median"] == 0
        assert table([near, far]).splitlines()[-1].endswith("! |")
        assert name != "gradient b" or (far["worst"], far["gradient"]) == ("b", pytest.approx(0.2, rel=1e-2))
    assert not row("p", "bf16", off(np.nan, "gradient c"), theirs, wanted)["passed"]
    assert row("p", "f32", off(1e-6), off(0.0), wanted)["passed"]  # rounding, where PyTorch happens to have none
