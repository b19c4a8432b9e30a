"""Untrusted input may fail, never execute: names on their way into the Python face, `use` paths, array files."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hostile.hostile_inputs import DUNDERS, INJECTIONS, KEYWORDS, PATHS, arrays
from places import with_support
from thinning import thinned

from dslc.base.errors import BuildError, DslcError
from dslc.compiler.artifact.package import face_files
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build

NAMES = (*INJECTIONS, *DUNDERS, *KEYWORDS)
MODEL = """nn 1
dim B in 1..8 = 2
model Net(image: [B, 4]) -> (first: [B, 3], second: [B, 4]) {
  return image |> linear(3) as a, image * 2
}
train Net(label: i32[B], beta: float = 1.0) {
  loss = beta * cross_entropy(first, label) + mean(second)
  optimizer = sgd(lr=0.1)
}
"""


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("net") / "net.nn"
    path.write_text(MODEL)
    return build(check_file(path), Options(provider="reference")).header


def _is_constant(module: str) -> bool:
    """Whether the face equals its template: an import, three assignments, and no other statement."""
    kinds = [type(s).__name__ for s in ast.parse(module).body]
    return kinds == ["Expr", "ImportFrom", "Assign", "Assign", "Assign"]


def _shape(text: str) -> list[str]:
    return [type(node).__name__ for node in ast.walk(ast.parse(text))]


def _renamed(header: Any, place: str, name: str) -> Any:
    interface = {**header["interface"]}
    match place:
        case "artifact":
            interface["name"] = name
        case "model":
            interface["model"] = name
        case "input" | "result":
            [first, *rest] = interface[f"{place}s"]
            interface[f"{place}s"] = [{**first, "name": name}, *rest]
        case "scalar":
            [first, *rest] = interface["train"]["scalars"]
            interface["train"] = {**interface["train"], "scalars": [{**first, "name": name}, *rest]}
        case "dim":
            [first, *rest] = interface["inputs"]
            interface["inputs"] = [{**first, "shape": [name, 4]}, *rest]
    return {**header, "interface": interface}


@pytest.mark.parametrize("place", ["artifact", "model", "input", "result", "scalar", "dim"])
def test_no_name_brings_text_into_the_face(header: Any, place: str) -> None:
    refused = 0
    honest = _shape(face_files(header)["__init__.pyi"])
    for name in NAMES:
        try:
            files = face_files(_renamed(header, place, name))
        except BuildError as error:
            assert error.code == "E0604"
            refused += 1
            continue
        except AssertionError as error:  # a size that the schema of the header refuses before
            assert place == "dim" and "not a size" in str(error)
            refused += 1
            continue
        assert _is_constant(files["__init__.py"])
        # The stub has the very tree of an honest one: a name in it is a name, a size is part of a docstring.
        assert _shape(files["__init__.pyi"]) == honest, f"{name!r} changed the stub"
    # What stands in a dim is shown in a docstring alone; everything else must be an identifier.
    assert refused >= (len(INJECTIONS) // 2 if place == "dim" else len(NAMES) - len(DUNDERS))


def test_the_check_of_the_face_can_fail(header: Any) -> None:
    files = face_files(header)
    assert _is_constant(files["__init__.py"])
    assert not _is_constant(files["__init__.py"].replace("predict =", "import os\npredict ="))
    stub = files["__init__.pyi"]
    assert _shape(stub) != _shape(stub.replace("import os\n", "import os\nimport sys\n", 1))


@pytest.mark.parametrize("what", thinned(["model", "label", "input", "file", "result", "param", "block"], 3))
def test_no_name_in_a_source_brings_more_than_an_error(what: str, tmp_path: Path) -> None:
    words = {"model": "Net", "input": "image", "result": "first", "label": "a", "param": "w", "block": "b", "file": ""}
    text = MODEL.replace("  return", "  param w: [4] = zeros\n  y = b(image * w)\n  return", 1).replace("* 2", "* y", 1)
    text = text.replace("model Net", "block b(v: [N, D]) -> [N, D] { return v }\nmodel Net", 1)
    path = tmp_path / "m.nn"
    built = 0
    for name in NAMES:
        source = text
        if what == "file":
            path = tmp_path / f"{name.replace('/', '_').replace(chr(0), '0')[:100]}.nn"
        elif what == "label":
            source = text.replace("as a", f"as {name}", 1)
        else:
            source = _word(text, words[what], name)
        path.write_text(source, encoding="utf-8", newline="")
        try:
            result = build(check_file(path), Options(provider="reference"))
            files = face_files(result.header)
        except DslcError as error:
            assert error.code[0] == "E" and error.exit_code == 2, error.render()
            continue
        built += 1
        assert _is_constant(files["__init__.py"])
        ast.parse(files["__init__.pyi"])
    assert built < len(NAMES)


def _word(text: str, old: str, new: str) -> str:
    import re

    return re.sub(rf"\b{old}\b", lambda _: new, text)


AUDIT = """
import os, sys
from pathlib import Path
import zipfile
from hostile.hostile_inputs import PATHS, arrays
from dslc.base.errors import DslcError
from dslc.dsl.load import load
from dslc.runtime.data.formats.arrays import read_array
from dslc.runtime.data.source import Source
root = Path(sys.argv[1])

def attempt(call):
    try:
        call()
    except DslcError:
        return 1
    return 0

def array(data, container):
    path = root / f"a.{container}"
    if container == "npy":
        path.write_bytes(data)
        return lambda: read_array(Source(path, None, "x"))
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("k.npy", data)
    return lambda: read_array(Source(path, "k", "x"))

def used(path):
    (root / "project/main.nn").write_text(f'nn 1\\nuse "{path}"\\n', newline="")
    return lambda: load(str(root / "project/main.nn"))

# Once without the hook, so that what is imported late is there.
calls = [lambda d=d, c=c: array(d, c) for _, d in arrays() for c in ("npy", "npz")]
calls += [lambda p=p: used(p) for p in PATHS]
for make in calls:
    attempt(make())
events, quiet = [], True
FORBIDDEN = ("exec", "compile", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "import",
             "socket.", "pty.", "shutil.", "os.remove", "os.rename", "os.mkdir", "ctypes.dlopen", "marshal.", "pickle.")
def hook(name, args):
    if quiet:
        return
    if name.startswith(FORBIDDEN):
        events.append((name, str(args)[:200]))
    elif name == "open" and not isinstance(args[0], int):
        there = os.path.realpath(os.fsdecode(args[0]))
        if not there.startswith(str(root.resolve()) + os.sep) or there.endswith("secret.nn"):
            events.append((name, there))
sys.addaudithook(hook)
refused = 0
for make in calls:
    call = make()
    quiet = False
    refused += attempt(call)
    quiet = True
assert not events, events
print(len(calls), refused)
quiet = False
open("/etc/hostname").close() if os.path.exists("/etc/hostname") else open("/proc/version").close()
exec("1")
quiet = True
assert {"open", "exec"} <= {name for name, _ in events}, events
print("control caught")
"""


def test_no_hostile_array_or_path_executes_or_opens_anything(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "secret.nn").write_text("nn 1\n")
    (project / "link.nn").symlink_to(tmp_path / "secret.nn")
    (project / "folder.nn").mkdir()
    os.mkfifo(project / "fifo.nn")
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, str(tmp_path)], env=with_support(),
        capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    tried = 2 * len(list(arrays())) + len(PATHS)
    assert done.stdout.splitlines() == [f"{tried} {tried}", "control caught"]
    assert not (tmp_path / "pwned").exists()
