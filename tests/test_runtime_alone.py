"""dslc-runtime, installed with its dependencies alone, trains and predicts; what needs the compiler says so."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from places import ROOT
from wheel_files import built, copied

import dslc
from dslc.base.version import VERSION
from dslc.cli.table import COMMANDS

BUDGET = 160e6  # bytes of an installed dslc-runtime with all that it depends on
#: Each command that needs the compiler, as a user calls it.
NEEDS = {
    "check": "spam.nn", "build": "", "fmt": "spam.nn", "ops": "", "lock": "", "tune": "", "show": "", "why": "fc1",
    "mem": "spam.nn", "bench": "spam.nn", "verify": "build/spam --rebuild spam.nn", "eval": "--precision f64",
}  # fmt: skip


def dependencies(names: list[str]) -> set[str]:
    """The distributions that these need here, and these."""
    found: set[str] = set()
    while names:
        name = names.pop()
        if name not in found:
            found.add(name)
            for text in importlib.metadata.requires(name) or ():
                need = Requirement(text)
                if need.marker is None or need.marker.evaluate({"extra": ""}):
                    names.append(need.name.lower())
    return found


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A virtual environment with dslc-runtime and its dependencies alone: ``python``, and the ``size`` in bytes."""
    wheels, place = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("clean")
    built(copied(tmp_path_factory.mktemp("source")), wheels)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    [packages] = place.glob("lib/python3*/site-packages")
    size = 0
    for name in sorted(dependencies([Requirement(line).name.lower() for line in required_lines()])):
        for file in importlib.metadata.files(name) or ():
            source = Path(str(file.locate()))
            if ".." not in file.parts and source.is_file():
                size += source.stat().st_size
                target = packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(source.resolve())
    with zipfile.ZipFile(wheels / f"dslc_runtime-{VERSION}-py3-none-any.whl") as file:
        file.extractall(packages)
        size += sum(i.file_size for i in file.infolist())
    return SimpleNamespace(python=place / "bin" / "python", size=size)


def required_lines() -> list[str]:
    lines = (line.partition("#")[0].strip() for line in (ROOT / "wheels/runtime.txt").read_text().splitlines())
    return [line for line in lines if line]


RUN = """
import importlib.util, json, sys
import numpy as np
import dslc
names = ("dslc.compiler", "dslc.dsl", "dslc.own_ops", "dslc.testing", "dslc.tune")
names += ("numba", "llvmlite", "lark", "pytest")
there = [name for name in names if importlib.util.find_spec(name.partition(".")[0]) and importlib.util.find_spec(name)]
sys.path.insert(0, "build")
import spam
point = np.linspace(-1, 1, 100, dtype=np.float32).reshape(50, 2)
with spam.session(weights="init", seed=3) as session:
    arm = np.arange(50, dtype=np.int32) % 3
    loss = [float(session.train_step(point=point, arm=arm, lr=0.1).loss) for _ in range(3)]
    out = session.predict(point=point)
print(json.dumps({"file": dslc.__file__, "there": there, "loss": loss, "out": out.tobytes().hex()}))
"""


@pytest.mark.slow
def test_the_runtime_alone(clean: SimpleNamespace, tmp_path: Path) -> None:
    """A project that was built here trains and predicts there with the same bits; what builds says what it needs."""

    def call(*args: str, python: Path = Path(sys.executable), code: int = 0, cwd: Path) -> str:
        ran = subprocess.run([str(python), *args], cwd=cwd, capture_output=True, text=True)
        assert ran.returncode == code, ran.stderr
        return ran.stdout + ran.stderr

    project = tmp_path / "spam"
    call("-m", "dslc", "new", "spam", cwd=tmp_path)
    call("-m", "dslc", "build", cwd=project)
    here = json.loads(call("-c", RUN, cwd=project))
    there = json.loads(call("-c", RUN, python=clean.python, cwd=project))
    assert here["there"] and not there["there"]
    assert not there["file"].startswith(str(ROOT)) and here["file"] == dslc.__file__
    assert (there["loss"], there["out"]) == (here["loss"], here["out"]) and here["loss"][0] != here["loss"][2]

    def runs(*args: str, code: int = 0) -> str:
        return call("-m", "dslc", *args, python=clean.python, code=code, cwd=project)

    assert "is used as it was built" in runs("train", "--epochs", "2", "--trust")
    assert "accuracy" in runs("eval", "--trust") and "sound" in runs("verify", "build/spam")
    assert "Net" in runs("info", "build/spam") and "run on the CPU" in runs("doctor")
    said = re.compile(r"error\[R205\]: this needs the compiler(.*\n)+  = help: pip install dslc\n")
    assert NEEDS.keys() < COMMANDS.keys()
    for command, arguments in NEEDS.items():
        assert said.match(runs(command, *arguments.split(), code=4)), command
    (project / "build" / "spam" / "spam.dslc").unlink()
    assert "error[R311]: there is no artifact, and no compiler" in runs("train", code=5)


@pytest.mark.slow
def test_the_runtime_is_small(clean: SimpleNamespace) -> None:
    assert 20e6 < clean.size <= BUDGET, f"{clean.size / 1e6:.0f} MB"
