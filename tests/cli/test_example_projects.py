"""The examples that draw their own data: made, trained for a moment, and used by their scripts, as their READMEs say.

Everything is small, and runs through numpy, which builds at once; what is asserted is out of reach without training.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from places import EXAMPLES

pytestmark = pytest.mark.slow


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """``example("unet")``: a copy of the example without what runs made, which is the working folder then."""

    def copy(name: str) -> Path:
        folder = tmp_path / name
        shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("build", "runs", "data", "__pycache__"))
        monkeypatch.chdir(folder)
        return folder

    return copy


def script(*args: object) -> str:
    ran = subprocess.run([sys.executable, *map(str, args)], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def trained(dslc_process: Callable, *flags: str) -> dict[str, float]:
    ran = dslc_process("train", "--json", "--set", "build.providers=reference", *flags)
    assert ran.code == 0, ran.err
    metrics: dict[str, float] = ran.json["metrics"]
    return metrics


def test_unet_finds_shapes_and_draws_them(dslc_process: Callable, example: Callable[[str], Path]) -> None:
    folder = example("unet")
    assert "160 + 40 images" in script("make_data.py", 160, 40)
    with np.load("data/shapes.npz") as data:
        assert data["train_x"].shape == (160, 1, 32, 32) and data["test_y"].shape == (40, 32, 32)
        assert set(np.unique(data["train_y"])) == {0, 1, 2, 3}
    found = trained(dslc_process, "-D", "width=4", "-D", "depth=1", "--size", "B=8", "--epochs", "4", "--lr", "0.02")
    assert found["iou"] > 0.25, "no shape found is 0.2: the background alone"

    said = script("predict.py", "shapes.ppm")
    assert f"{found['accuracy']:.2%} of the pixels of 40 test images" in said
    header, _, pixels = (folder / "shapes.ppm").read_bytes().partition(b"\n")
    width, height = 3 * (4 * 32 + 8), 8 * (4 * 32 + 8)
    assert header == f"P6 {width} {height} 255".encode() and len(pixels) == width * height * 3


def test_unet_images_are_the_same_for_the_same_numbers(example: Callable[[str], Path]) -> None:
    example("unet")
    drawn = []
    for _ in range(2):
        script("make_data.py", 4, 2)
        drawn.append(Path("data/shapes.npz").read_bytes())
    assert drawn[0] == drawn[1]


def test_inception_learns_the_digits(dslc_process: Callable, example: Callable[[str], Path]) -> None:
    folder = example("inception")
    digits = EXAMPLES / "digits" / "digits.npz"
    data = [
        f"data.{part}.{name}={digits}:{array}_{letter}"
        for part, array in (("train", "train"), ("eval", "test"))
        for name, letter in (("image", "x"), ("label", "y"))
    ]
    flags = [word for each in data for word in ("--set", each)]
    found = trained(dslc_process, "-D", "width=2", "--size", "B=32", "--epochs", "2", *flags)
    assert found["accuracy"] > 0.3, "a guess among ten is right by 0.1"
    assert (folder / "build" / "inception" / "inception.safetensors").exists()


def test_charlm_learns_and_writes_text(dslc_process: Callable, example: Callable[[str], Path]) -> None:
    example("charlm")
    said = script("make_data.py", 20_000, 5_000)
    pairs = float(said.split("pairs of characters: ")[1].split()[0])
    train = np.fromfile("data/train.bin", "<u2")
    assert len(train) == 20_000 and train.max() < 128 and 3 < pairs < 6
    flags = ("-D", "layers=1", "-D", "d=32", "-D", "heads=2", "--size", "train:B=16", "--size", "predict:B=1")
    found = trained(dslc_process, *flags, "--epochs", "4", "--set", "train.lr=constant")
    assert found["bits"] < 5.0, "7 bits are a guess among 128"

    def written(*options: str) -> str:
        ran = dslc_process("predict", "--artifact", "build/charlm", "--generate", *options)
        assert ran.code == 0, ran.err
        return str(ran.out)

    greedy = ("80", "--prompt", "import ", "--temperature", "0")
    text = written(*greedy)
    assert text.startswith("import ") and len(text) == 7 + 80 + 1 and text == written(*greedy)
    warm = [written("30", "--prompt", "def ", "--seed", seed) for seed in ("0", "1")]
    assert all(text.startswith("def ") for text in warm) and warm[0] != warm[1]


def test_lstm_carries_its_state_and_writes_text(dslc_process: Callable, example: Callable[[str], Path]) -> None:
    example("lstm")
    said = script("make_data.py", 20_000, 4_000)
    assert 3 < float(said.split("pairs of characters: ")[1].split()[0]) < 6
    flags = ("-D", "layers=1", "-D", "hidden=48", "-D", "d=16", "--size", "train:T=16", "--epochs", "3")
    found = trained(dslc_process, *flags, "--set", "train.lr=constant", "--lr", "0.01")
    assert found["bits"] < 5.0, "7 bits are a guess among 128"

    def written(prompt: str) -> str:
        asked = ("predict", "--artifact", "build/lstm", "--generate", "20", "--prompt", prompt, "--temperature", "0")
        ran = dslc_process(*asked)
        assert ran.code == 0, ran.err
        return str(ran.out)

    prompt = "Return the object of that name."  # in windows of 16 and 1
    text = written(prompt)
    assert text.startswith(prompt) and len(text) == len(prompt) + 20 + 1
    assert written(text[: len(prompt) + 7]).startswith(text[: len(prompt) + 20]), "it goes on as it would have"


def test_forecast_beats_the_week_before(dslc_process: Callable, example: Callable[[str], Path]) -> None:
    example("forecast")
    guess = float(script("make_data.py", 160, 40).split("a week ago: an error of ")[1])
    found = trained(dslc_process, "-D", "hidden=12", "--size", "B=16", "--epochs", "6", "--lr", "0.02")
    assert found["error"] < 0.75 * guess
    said = script("predict.py")
    assert said.count(" h  ") == 24 and f"over 40 days: {found['error']:.3f}" in said
