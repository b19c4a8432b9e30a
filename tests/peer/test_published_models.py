"""The models of examples predict what torchvision's and transformers' predict from the same weights, in f32 on the CPU.

The predictions of the originals are recorded in tests/published, so torch is needed only to record them again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from places import EXAMPLES, ROOT
from published.cases import SMALL, Case
from published.values import BATCH, TOKENS, image_side, inputs, weight

import dslc
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build
from dslc.runtime.weights import safetensors_file as tensorfile

TOLERANCE = 1e-4  # of the largest prediction
KERNELS = ("resnet18", "vit_tiny", "bert-tiny", "gpt2-tiny")  # with kernels; those of the others take long to compile
QUICK = [case for case in SMALL if case.args.get("layers") == "2"]
RUNS = [
    *(pytest.param(case, "reference", marks=() if case in QUICK else pytest.mark.slow) for case in SMALL),
    *(pytest.param(case, "own", marks=pytest.mark.slow) for case in SMALL if case.name in KERNELS),
]


def recorded(name: str) -> dict[str, NDArray[Any]]:
    with np.load(ROOT / f"tests/published/{name}.npz", allow_pickle=False) as file:
        return dict(file)


def write_original(path: Path, names: NDArray[Any], shapes: NDArray[Any]) -> None:
    """The weights file of the original."""
    arrays = {
        name: weight(name, tuple(int(n) for n in text.split("x")))
        for name, text in zip(names.tolist(), shapes.tolist(), strict=True)
    }
    path.write_bytes(tensorfile.encode(arrays))


def predict_only(case: Case, folder: Path, provider: str) -> dslc.Session:
    """The example without its train section, built for the recorded batch and loaded without weights."""
    file, _, model = case.model.partition(":")
    text = (EXAMPLES / f"models/{file}.nn").read_text(encoding="utf-8")
    path = folder / f"{file}.nn"
    path.write_text(re.sub(r"^train .*?^}\n", "", text, flags=re.MULTILINE | re.DOTALL), encoding="utf-8")
    checked = check_file(path, model, case.args)
    every = {"B": BATCH, "S": image_side(case.name), "T": TOKENS}
    sizes = {dim.name: [every[dim.name]] for dim in checked.dims}
    result = build(checked, Options(provider=provider, sizes={"predict": sizes}))
    artifact = folder / f"{result.name}.dslc"
    artifact.write_bytes(result.artifact)
    return dslc.load(artifact)


def predictions(case: Case, folder: Path, provider: str, want: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    path = folder / "original.safetensors"
    write_original(path, want["names"], want["shapes"])
    with predict_only(case, folder, provider) as session:
        session.weights.load(path, map=case.map)
        found = session.predict(**inputs(case.name))
    return {f"result.{k}": v for k, v in (found._asdict() if hasattr(found, "_asdict") else {"output": found}).items()}


@pytest.mark.parametrize(("case", "provider"), RUNS, ids=lambda value: value if isinstance(value, str) else value.name)
def test_predictions_are_those_of_the_original(case: Case, provider: str, tmp_path: Path) -> None:
    want = recorded(case.name)
    found = predictions(case, tmp_path, provider, want)
    assert {k for k in want if k.startswith("result.")} == found.keys()
    for key, value in found.items():
        largest = np.abs(want[key]).max()
        assert np.ptp(want[key], axis=0).max() > 100 * TOLERANCE * largest, "the predictions ignore the input"
        error = np.abs(value - want[key]).max() / largest
        print(f"{case.name} {key}: {error:.1e}")
        assert error < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_the_recorded_predictions_are_those_of_torch(case: Case) -> None:
    for library in ("torch", "torchvision", "transformers"):
        pytest.importorskip(library, reason=f"{library} is not installed")
    from published.originals import predictions as of_torch

    found, want = of_torch(case.name), recorded(case.name)
    assert found.keys() == want.keys()
    for key, value in found.items():
        if key.startswith("result."):
            np.testing.assert_allclose(value, want[key], rtol=0, atol=TOLERANCE * np.abs(want[key]).max())
        else:
            assert value.tolist() == want[key].tolist()
