"""The models of benchmarks/zoo predict what their PyTorch twins predict from the same weights, with equal gradients.

Both compute in f64, at small sizes. Skipped where torch, torchvision or transformers is not installed.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np
import pytest
from entries import ENTRIES, Entry
from ours import agreement, source

import dslc
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build

for library in ("torch", "torchvision", "transformers"):
    pytest.importorskip(library, reason=f"{library} is not installed")
from safetensors.torch import load_file, save_file  # noqa: E402
from twin import Torch  # noqa: E402
from twins import MADE  # noqa: E402

TOLERANCE = 1e-5  # the twin's weights, gradients and predictions are stored in f32
SMALL = {"B": 2, "S": 64, "T": 16, "N": 32, "n": 16, "E": 100, "features": 20}
#: Sizes that fit to others, or that the model's windows need.
WHOLE = {
    "Inception-v3": ("S",), "U-Net 2015": ("n",), "wav2vec 2.0 base": ("N",), "Deep Speech 2": ("N",),
    "Conformer-M": ("N",), "EnCodec": ("N",),
}  # fmt: skip
QUICK = ("PointNet", "DLRM", "GCN", "WaveNet", "SchNet", "KAN")


def small(entry: Entry) -> Entry:
    """The entry at small sizes."""
    whole = WHOLE.get(entry.name, ())
    sizes = {n: size if n in whole else min(size, SMALL.get(n, size)) for n, size in entry.sizes.items()}
    if "room" in sizes:
        sizes["room"] = 6  # not enough for all
    return dataclasses.replace(entry, sizes=sizes)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if x.dtype == np.float32 else x


def test_each_model_has_a_twin() -> None:
    assert MADE.keys() == {entry.name for entry in ENTRIES}


@pytest.mark.filterwarnings("ignore:.*W004")  # the twin's files have no digests
@pytest.mark.parametrize(
    "entry",
    [pytest.param(e, marks=() if e.name in QUICK else pytest.mark.slow, id=e.name) for e in ENTRIES],
)
def test_predictions_and_gradients_are_those_of_the_twin(entry: Entry, tmp_path: Path) -> None:
    entry = small(entry)
    asked = argparse.Namespace(device="cpu", dtype="f32", compile=False, freeze=False, only_time=False, folder=tmp_path)
    twin = Torch(entry, asked)
    twin.agreement()
    for name in ("weights", "gradients"):
        path = tmp_path / f"{name}.safetensors"
        save_file({n: x.double() for n, x in load_file(path).items()}, path)
    (tmp_path / "net.nn").write_text(source(entry), encoding="utf-8")
    sizes = {name: (size,) for name, size in entry.dims().items()}
    checked = check_file(tmp_path / "net.nn", entry.file.partition(":")[2], entry.arguments())
    made = build(checked, Options(provider="reference", precision="f64", sizes={"train": sizes, "predict": sizes}))
    (tmp_path / "net.dslc").write_bytes(made.artifact)
    with dslc.load(tmp_path / "net.dslc", device="cpu", weights="init") as session:
        inputs, labels = ({n: wide(x) for n, x in each.items()} for each in entry.drawn())
        found = agreement(entry, session, tmp_path, inputs, labels)
    print(found)
    assert found["output"] < TOLERANCE and found["gradient"] < TOLERANCE, found
