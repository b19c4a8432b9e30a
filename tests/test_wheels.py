"""The two wheels: what each holds, that they are the same bytes again, and the containers made of them."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from packaging.requirements import Requirement
from places import ROOT
from wheel_files import FLOORS, FOLDERS, built, copied, tracked

from dslc.base.version import COMPILER, VERSION

#: The module's name of a package that is imported by another one.
IMPORTED = {"pyyaml": "yaml", "cuda-bindings": "cuda", "pillow": "PIL", "nvidia-cudnn-frontend": "cudnn",
            "nccl4py": "nccl"}  # fmt: skip


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of both wheels, built from a clean copy."""
    out = tmp_path_factory.mktemp("wheels")
    built(copied(tmp_path_factory.mktemp("source")), out)
    return out


def names_in(wheels: Path, stem: str) -> list[str]:
    with zipfile.ZipFile(wheels / f"{stem}-{VERSION}-py3-none-any.whl") as file:
        return file.namelist()


def metadata_of(wheels: Path, stem: str) -> list[str]:
    with zipfile.ZipFile(wheels / f"{stem}-{VERSION}-py3-none-any.whl") as file:
        return file.read(f"{stem}-{VERSION}.dist-info/METADATA").decode().split("\n\n")[0].splitlines()


def test_each_file_is_in_one_wheel(wheels: Path) -> None:
    wanted = set()
    for name in tracked():
        floor, _, rest = name.partition("/")
        if floor in FLOORS and rest:
            wanted.add(f"dslc/{floor}/{rest}")
        elif floor == "dslc" and rest not in FLOORS:
            wanted.add(name)
    held = {stem: [n for n in names_in(wheels, stem) if ".dist-info/" not in n] for stem in FOLDERS}
    assert sorted(held["dslc"] + held["dslc_runtime"]) == sorted(wanted)
    compiler = tuple(f"{package.replace('.', '/')}/" for package in COMPILER)
    assert all(n.startswith(compiler) for n in held["dslc"])
    assert not any(n.startswith(compiler) for n in held["dslc_runtime"])


def test_what_they_depend_on(wheels: Path) -> None:
    compiler, runtime = metadata_of(wheels, "dslc"), metadata_of(wheels, "dslc_runtime")
    assert f"Requires-Dist: dslc-runtime=={VERSION}" in compiler
    assert f"Version: {VERSION}" in compiler and f"Version: {VERSION}" in runtime
    plain = {Requirement(line.split(": ", 1)[1]).name for line in runtime if re.match(r"Requires-Dist: [^;]*$", line)}
    assert plain == {"numpy", "pyyaml", "cuda-bindings", "safetensors", "click", "rich"}
    assert not any(re.search("numba|lark|llvmlite|pytest", line) for line in runtime)
    assert f"dslc_runtime-{VERSION}.dist-info/entry_points.txt" in names_in(wheels, "dslc_runtime")
    assert f"dslc-{VERSION}.dist-info/entry_points.txt" not in names_in(wheels, "dslc")


def test_a_wheel_of_a_checkout_takes_the_runtime_of_the_checkout(tmp_path: Path) -> None:
    """`pip install .` must work without an index that has dslc-runtime."""
    source, out = tmp_path / "a b", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    built(copied(source), out, release="false")
    [line] = [line for line in metadata_of(out, "dslc") if "dslc-runtime" in line]
    needed = Requirement(line.split(": ", 1)[1])
    assert needed.url == (source / "wheels").as_uri() and unquote(urlsplit(needed.url).path) == str(source / "wheels")
    with pytest.raises(subprocess.CalledProcessError):
        built(source, out, release="perhaps")


def test_the_runtime_imports_only_what_it_depends_on_or_an_extra_names(wheels: Path) -> None:
    needed = [
        Requirement(line.split(": ", 1)[1]).name for line in metadata_of(wheels, "dslc_runtime") if "Dist" in line
    ]
    allowed = {IMPORTED.get(name, name) for name in needed} | {"dslc"} | sys.stdlib_module_names
    wrong = []
    for name in names_in(wheels, "dslc_runtime"):
        if name.endswith(".py"):
            wrong += [f"{name}: {found}" for found in imports(name) if found.partition(".")[0] not in allowed]
    # the probe of the compiler
    assert wrong == ["dslc/cli/doctor/probes.py: numba.cuda", "dslc/cli/doctor/probes.py: numba.cuda.compiler"]


def imports(name: str) -> Iterator[str]:
    for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


def test_the_same_bytes_again(tmp_path: Path) -> None:
    found = []
    for number, when in enumerate(("1700000000", "1700000000", "1700000002")):
        source, out = tmp_path / f"source{number}", tmp_path / f"out{number}"
        source.mkdir()
        out.mkdir()
        copied(source)
        if number == 1:  # another umask, other times, another order of making, leftovers of an editor and of Python
            for path in sorted(source.rglob("*.py"), reverse=True):
                path.chmod(0o700)
                os.utime(path, (1, 1))
            (source / "dslc" / ".swp").write_text("x")
            (source / "dslc" / "face.py.orig").write_text("x")
            (source / "dslc" / "__pycache__").mkdir()
            (source / "dslc" / "__pycache__" / "face.py").write_text("x")
        found.append(
            built(source, out, SOURCE_DATE_EPOCH=when, PYTHONHASHSEED=str(number), TZ=("UTC", "Asia/Tokyo")[number % 2])
        )
    assert set(found[0]) == set(FOLDERS)
    assert found[0] == found[1]
    assert all(found[0][name] != found[2][name] for name in FOLDERS), "SOURCE_DATE_EPOCH is ignored"


def test_a_wheels_record_is_right(wheels: Path) -> None:
    for stem in FOLDERS:
        with zipfile.ZipFile(wheels / f"{stem}-{VERSION}-py3-none-any.whl") as file:
            assert file.testzip() is None
            rows = file.read(f"{stem}-{VERSION}.dist-info/RECORD").decode().splitlines()
            listed = {row.rsplit(",", 2)[0]: row.rsplit(",", 2)[2] for row in rows}
            sizes = {i.filename: str(i.file_size) for i in file.infolist()}
            assert {i.external_attr >> 16 for i in file.infolist()} == {0o100644}
        record = f"{stem}-{VERSION}.dist-info/RECORD"
        assert listed == {**sizes, record: ""}


@pytest.mark.slow
def test_an_editable_install_holds_everything(tmp_path: Path) -> None:
    source = copied(tmp_path)
    code = "import dslc_wheels; print(dslc_wheels.prepare_metadata_for_build_editable('.'))"
    env = {**os.environ, "PYTHONPATH": str(source / "wheels")}
    ran = subprocess.run([sys.executable, "-c", code], cwd=source, env=env, capture_output=True, text=True, check=True)
    folder = source / ran.stdout.split()[-1]
    required = [
        Requirement(line.split(": ", 1)[1])
        for line in (folder / "METADATA").read_text().splitlines()
        if line.startswith("Requires-Dist")
    ]
    plain = {each.name.lower() for each in required if each.marker is None}
    assert plain == {"numpy", "pyyaml", "cuda-bindings", "safetensors", "click", "rich", "lark", "numba"}
    assert "dslc = dslc.cli:main" in (folder / "entry_points.txt").read_text()


@pytest.mark.slow
def test_both_wheels_together_work_without_the_checkout(wheels: Path, tmp_path: Path) -> None:
    both = tmp_path / "both"
    for stem in FOLDERS:
        with zipfile.ZipFile(wheels / f"{stem}-{VERSION}-py3-none-any.whl") as file:
            file.extractall(both)
    env = {**os.environ, "PYTHONPATH": str(both)}

    def run(*args: str, cwd: Path) -> str:
        code = "import dslc, sys; print(dslc.__file__, file=sys.stderr); from dslc.cli import main; main()"
        ran = subprocess.run([sys.executable, "-c", code, *args], cwd=cwd, env=env, capture_output=True, text=True)
        assert ran.returncode == 0 and ran.stderr.startswith(str(both)), ran.stderr
        return ran.stdout

    run("new", "spam", cwd=tmp_path)
    assert "Net(point: [B, 2])" in run("check", "spam.nn", cwd=tmp_path / "spam")
    assert "epoch 2/2" in run("train", "--epochs", "2", cwd=tmp_path / "spam")
    assert run("explain", "E0301", cwd=tmp_path).startswith("# E0301")


CONTAINERS = sorted((ROOT / "containers").glob("*.Dockerfile"))


@pytest.mark.parametrize("file", CONTAINERS, ids=lambda path: path.stem)
def test_a_container_copies_what_its_wheels_need(file: Path, tmp_path: Path) -> None:
    """The copied paths exist and suffice for the build's command; the result does not run as root."""
    text = re.sub(r"\\\n\s*", "", file.read_text(encoding="utf-8"))
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        *sources, target = line.split()
        assert all((ROOT / name).exists() for name in sources)
        names = [n for n in tracked() if any(n == s or n.startswith(f"{s}/") for s in sources)]
        assert target in (*sources, "./")
        packed = subprocess.run(["tar", "-cf", "-", *names], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-xf", "-"], cwd=tmp_path, input=packed, check=True)
    [command] = re.findall(r"^RUN pip (wheel .+)$", text, re.MULTILINE)
    arguments = command.replace("/wheels", str(tmp_path / "out"), 1).replace(f"./{tmp_path}", "./").split()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, *arguments, "--no-build-isolation"], cwd=tmp_path, check=True)
    made = {path.name.split("-")[0] for path in (tmp_path / "out").iterdir()}
    [wanted] = re.findall(r'pip install .* "?([a-z-]+)(?:\[cuda\])?"?$', text, re.MULTILINE)
    assert wanted.replace("-", "_") in made
    assert text.index("\nUSER dslc") < text.index("ENTRYPOINT") and "python:3.12-slim" in text
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"\[([a-z]+)\]\"", text)) <= set(extras)


def test_there_is_a_container_for_each() -> None:
    assert [path.stem for path in CONTAINERS] == ["dslc", "runtime"]
