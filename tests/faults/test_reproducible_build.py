"""The same source gives the same bytes: in any folder, for any user's locale, time zone, umask and hash seed."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from places import MODELS, ROOT

pytestmark = pytest.mark.slow

SOURCES = {
    "lenet": ROOT / "examples/digits/lenet.nn",
    "vae": ROOT / "examples/vae/vae.nn",
    "resnet18": ROOT / "examples/resnet/resnet.nn",
    "siamese": ROOT / "tests/models/siamese.nn",
    "unet": ROOT / "tests/models/unet.nn",
}


def build(
    model: Path, folder: Path, suffix: str, *args: str, umask: int = 0o022, providers: str = "reference", **env: str
) -> dict[str, bytes]:
    """Everything a build writes, by name."""
    folder.mkdir(parents=True)
    shutil.copy(model, folder / model.name)
    command = [sys.executable, "-m", "dslc", "build", model.name + suffix, "--providers", providers, *args]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=100,
        umask=umask,
    )
    assert done.returncode == 0, done.stderr
    files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in (folder / "build").rglob("*") if p.is_file()}
    return {name: data for name, data in files.items() if "report" not in name and ".lock" not in name}


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_same_bytes(name: str, tmp_path: Path) -> None:
    model = SOURCES[name]
    suffix = ":ResNet18" if name == "resnet18" else ""
    size = "B=4"
    first = build(model, tmp_path / "one", suffix, "--size", size, PYTHONHASHSEED="1", TZ="UTC", LC_ALL="C")
    second = build(
        model,
        tmp_path / "a much longer folder" / "überraschung",
        suffix,
        "--size",
        size,
        umask=0o077,
        PYTHONHASHSEED="4242",
        TZ="Asia/Kathmandu",
        LC_ALL="C.UTF-8",
        LANG="de_DE.UTF-8",
        HOME=str(tmp_path),
        COLUMNS="20",
    )
    assert any(n.endswith(".dslc") for n in first)
    assert first == second
    other = build(model, tmp_path / "other", suffix, "--size", "B=5")
    assert other != first, "another size must give other bytes, or the comparison proves nothing"


SMALL = """nn 1
dim B in 1..8 = 2
model Small(x: [B, 6]) -> [B, 3] { return x |> linear(5) as a |> relu |> linear(3) as b |> softmax }
"""


def test_same_bytes_with_kernels(tmp_path: Path) -> None:
    """Compiled from scratch, without a cache, by one process and by several: the order of the work has no effect."""
    model = tmp_path / "small.nn"
    model.write_text(SMALL)
    first = build(model, tmp_path / "one", "", "--size", "B=2", providers="auto", PYTHONHASHSEED="1")
    second = build(
        model, tmp_path / "two", "", "--size", "B=2", umask=0o077, providers="auto", PYTHONHASHSEED="77",
        HOME=str(tmp_path), DSLC_CACHE_DIR="off",
    )  # fmt: skip
    assert first == second
    assert any(b"code.x86_64_v3" in data for name, data in first.items() if name.endswith(".dslc"))


def test_model_in_text_holds_no_path(tmp_path: Path) -> None:
    files = build(SOURCES["lenet"], tmp_path / "a-telling-name", "")
    for data in files.values():
        assert b"a-telling-name" not in data


NOT_BUILT = ("lstm_lm.nn",)  # `scan` is not compiled yet
FILES = sorted([*(ROOT / "examples").glob("*/*.nn"), *MODELS.glob("*.nn")])
EVERY = [path for path in FILES if path.name not in NOT_BUILT]
PIECES = {
    "gpt2.nn": ("-D", "layers=2", "-D", "d=48", "--size", "T=16"),
    "writer.nn": ("-D", "layers=2", "-D", "d=48", "--size", "T=4"),
    "bert.nn": ("-D", "layers=2", "-D", "d=48", "--size", "T=16"),
    "vit.nn": ("-D", "layers=2", "--size", "B=2"),
}


def _models(path: Path) -> list[str]:
    """The suffix after the file's name that selects the model: empty if the file has one."""
    names = re.findall(r"^model (\w+)", path.read_text(), re.MULTILINE)
    return [""] if len(names) == 1 else [f":{name}" for name in names]


def test_hash_seeds_and_processes(tmp_path: Path, fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    """Every model of the examples and tests under random hash seeds, two at a time; in a short run, one of them."""
    every = [(path, suffix) for path in EVERY for suffix in _models(path)]
    assert len(every) >= 9
    rng = random.Random(fuzz_seed)
    chosen = rng.sample(every, fuzz_count(len(every)))
    for number, (path, suffix) in enumerate(chosen):
        seeds = [str(rng.randrange(1, 2**32)) for _ in range(2)]
        args = ("--precision", "f32", *PIECES.get(path.name, ("--size", "B=2")))

        def at(seed: str, number: int = number, path: Path = path, suffix: str = suffix, args: Any = args) -> Any:
            return build(path, tmp_path / f"{number}.{seed}", suffix, *args, PYTHONHASHSEED=seed)

        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(at, seeds)
        assert first == second and any(n.endswith(".dslc") for n in first), f"{path.name}{suffix} with {seeds}"
