"""The build backend (PEP 517) of both distributions. The folder that is built says which one: the root of the checkout
gives ``dslc``, the folder of this file ``dslc-runtime``.

``dslc-runtime`` holds all but the compiler; ``dslc`` holds the compiler and depends on the runtime of its version. So
each file is in one distribution only, and both together are the package `dslc`. A wheel is a zip file whose bytes
depend on the files' contents and SOURCE_DATE_EPOCH only. An editable install is setuptools' and holds everything.

``pip install .`` takes the runtime from the same checkout: the wheel names its folder. With the setting
``--config-settings release=true``, as for wheels that are given away, it names the runtime's version alone.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import time
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent
RUNTIME: Final = "dslc-runtime"
#: The parts of the package that only the compiler needs.
COMPILER: Final = ("compiler", "dsl", "own_ops", "testing", "tune")
#: Extras that only the compiler, or a contributor, needs.
COMPILER_EXTRAS: Final = ("cuda", "dev")
SUFFIXES: Final = (
    ".cu", ".cuh", ".html", ".json", ".lark", ".lock", ".md", ".nn", ".npz", ".py", ".txt", ".typed", ".yaml"
)  # fmt: skip
EARLIEST: Final = 315532800  # 1980-01-01, the first time that a zip file can hold
WHEEL: Final = "Wheel-Version: 1.0\nGenerator: dslc\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
EDITABLE: Final = ["setuptools>=77"]

Settings = Mapping[str, Any] | None


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Writes the wheel of the distribution whose folder is the working folder; returns its name."""
    project = _project(Path("pyproject.toml"))
    stem = f"{project['name'].replace('-', '_')}-{version()}"
    info = f"{stem}.dist-info"
    files = {name: path.read_bytes() for name, path in package_files(project["name"])}
    files |= {
        f"{info}/METADATA": _metadata(project, released=_released(config_settings)).encode(),
        f"{info}/WHEEL": WHEEL.encode(),
        f"{info}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
    }
    if project["name"] == RUNTIME:
        files[f"{info}/entry_points.txt"] = (HERE / "entry_points.txt").read_bytes()
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD").encode()
    name = f"{stem}-py3-none-any.whl"
    _write(Path(wheel_directory) / name, files)
    return name


def _released(settings: Settings) -> bool:
    given = (settings or {}).get("release", "false")
    if given not in ("true", "false"):
        raise UnsupportedOperation(f"the setting `release` is true or false, not {given!r}")
    return bool(given == "true")


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Not offered: both distributions are built from one checkout, and pure Python needs no building elsewhere."""
    raise UnsupportedOperation("dslc is distributed as wheels and as the repository; build with `make wheels`")


class UnsupportedOperation(Exception):
    """As PEP 517 names it."""


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    return EDITABLE


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Settings = None) -> str:
    return str(_setuptools().prepare_metadata_for_build_editable(metadata_directory, config_settings))


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    return str(_setuptools().build_editable(wheel_directory, config_settings, metadata_directory))


def _setuptools() -> Any:
    if Path.cwd().resolve() != ROOT:
        raise UnsupportedOperation("an editable install holds everything: `pip install -e .` in the checkout's root")
    from setuptools import build_meta

    return build_meta


def package_files(distribution: str) -> Iterator[tuple[str, Path]]:
    """The files of a distribution, sorted: the name in the wheel, and the file."""
    for path in sorted((ROOT / "dslc").iterdir()):
        if (path.name in COMPILER) == (distribution == RUNTIME):
            continue
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            parts = file.relative_to(ROOT).parts
            hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
            if file.is_file() and not hidden and file.name.endswith(SUFFIXES):
                yield "/".join(parts), file


def version() -> str:
    text = (ROOT / "dslc" / "base" / "version.py").read_text(encoding="utf-8")
    found = re.search(r'^VERSION: Final = "([0-9a-z.]+)"$', text, re.MULTILINE)
    assert found is not None, "dslc/base/version.py names no version"
    return found[1]


def requirements(distribution: str, *, released: bool) -> list[str]:
    """What the distribution depends on."""
    if distribution == RUNTIME:
        return _lines(HERE / "runtime.txt")
    runtime = f"{RUNTIME}=={version()}" if released else f"{RUNTIME} @ {HERE.as_uri()}"
    return [runtime, *_lines(HERE / "compiler.txt")]


def extras(distribution: str) -> dict[str, list[str]]:
    """The extras of the distribution and their requirements."""
    found: dict[str, list[str]] = _project(ROOT / "pyproject.toml")["optional-dependencies"]
    return {k: v for k, v in found.items() if distribution != RUNTIME or k not in COMPILER_EXTRAS}


def _project(path: Path) -> dict[str, Any]:
    found = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    assert isinstance(found, dict)
    return found


def _lines(path: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def _metadata(project: Mapping[str, Any], *, released: bool) -> str:
    name = project["name"]
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {name}",
        f"Version: {version()}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        "License-File: LICENSE",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {requirement}" for requirement in requirements(name, released=released)),
    ]
    for extra, needed in extras(name).items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {each}; extra == "{extra}"' for each in needed)]
    lines.append("Description-Content-Type: text/markdown")
    return "\n".join(lines) + "\n\n" + Path(project["readme"]).read_text(encoding="utf-8")


def _record(files: Mapping[str, bytes], record: str) -> str:
    def row(name: str) -> str:
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).decode().rstrip("=")
        return f"{name},sha256={digest},{len(files[name])}"

    return "\n".join([*map(row, files), f"{record},,"]) + "\n"


def _write(path: Path, files: Mapping[str, bytes]) -> None:
    """A zip file with the files in their order; every file is readable by all, whatever the checkout's umask was."""
    seconds = max(EARLIEST, int(os.environ.get("SOURCE_DATE_EPOCH", EARLIEST)))
    when: Sequence[int] = time.gmtime(seconds)[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (when[0], when[1], when[2], when[3], when[4], when[5]))
            entry.create_system = 3  # Unix, for the mode
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
