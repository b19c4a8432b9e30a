"""Packages of ops for tests: the examples of docs/own_ops.md, installed in a folder of the import path."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from places import ROOT

from dslc.compiler.ir.op import OPS
from dslc.compiler.ops.packages import find
from dslc.compiler.ops.packages.find import Package, package
from dslc.compiler.ops.registry import load_all

PAGE = (ROOT / "docs" / "own_ops.md").read_text()
SPIKE, GATE = (
    re.findall(rf"<!-- {name} -->\n```python\n(.*?)```", PAGE, re.DOTALL)[0] for name in ("own op", "own kernel")
)


def write(folder: Path, text: str, entry: str = "spiking", version: str = "1.0", name: str = "spiking_ops") -> Path:
    """A package of ops in a folder of the import path."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "__init__.py").write_text("")
    (folder / name / "ops.py").write_text(text)
    return _described(folder, name, f"{name}.ops", entry, version)


def write_file(folder: Path, text: str, entry: str = "spiking") -> Path:
    """A package that is a single file."""
    folder.mkdir(exist_ok=True)
    (folder / "one_file.py").write_text(text)
    return _described(folder, "one_file", "one_file", entry, "1.0")


def _described(folder: Path, name: str, module: str, entry: str, version: str) -> Path:
    info = folder / f"{name}-1.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[dslc.ops]\n{entry} = {module}:functions\n")
    return folder


def run(folder: Path, *args: str, packages: Path | None) -> subprocess.CompletedProcess[str]:
    """The command line in another process, with packages on its import path."""
    path = "" if packages is None else f"import sys; sys.path.insert(0, {str(packages)!r}); "
    code = f"{path}import sys; from dslc.cli import main; sys.argv[1:] = {list(args)!r}; main()"
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)


@contextmanager
def imported(folder: Path, text: str, entry: str) -> Iterator[Package]:
    """A package in this process; afterwards its ops are gone."""
    load_all()
    name = f"{entry}_package"
    write(folder, text, entry, name=name)
    before = dict(OPS)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(folder)
            yield package(entry)
    finally:
        for op in OPS.keys() - before.keys():
            del OPS[op]
        find._LOADED.pop(entry, None)
        for module in [each for each in sys.modules if each.partition(".")[0] == name]:
            del sys.modules[module]
