"""``import dslc``, ``dslc.load``, and the module next to an artifact."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifacts.line_model import FEATURES, MEANINGS, PlanMaker, header, write_line
from places import ROOT

import dslc
from dslc.base.errors import BuildError, DslcError
from dslc.compiler.artifact.package import check_artifact_name, face_files
from dslc.runtime.artifact.file import Blob, read_artifact, write_artifact
from dslc.runtime.artifact.instructions import Copy, Fill
from dslc.runtime.session.load import load

Golden = Any


def python(code: str, *arguments: str | Path, path: str | Path = "") -> str:
    """What a fresh interpreter prints; it must not write to stderr."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("COV", "PYTEST"))}
    if path:
        environment["PYTHONPATH"] = os.pathsep.join([str(path), *filter(None, [environment.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False, env=environment, cwd="/",
    )  # fmt: skip
    assert done.stderr == "" and done.returncode == 0, done.stderr
    return done.stdout


def write_plain(folder: Path) -> Path:
    """An artifact without reference instructions: y is a copy of x, the weights are filled with ones."""
    init, predict = PlanMaker(), PlanMaker()
    init.names.append("fill w")
    init.instructions.append(Fill(init.buffer("state", "f32", (2,), 0), np.float32(1).tobytes(), 0, 0))
    predict.names.append("copy x")
    x, y = predict.input("x", "f32", (2,)), predict.output("y", "result", "f32", (2,))
    predict.instructions.append(Copy(x, y, 0, 0))
    programs, blobs = [], []
    for entry, maker in (("init", init), ("predict", predict)):
        blobs.append(Blob(f"plan.{entry}", "plan", maker.plan().encode()))
        programs.append(
            {
                "entry": entry,
                "target": "cpu",
                "provider": "own",
                "sizes": {},
                "io_bytes": maker.ends["io"],
                "work_bytes": 0,
                "context_bytes": 0,
                "plan": f"plan.{entry}",
                "lower_bound": 0,
                "planned": 0,
            }
        )
    whole = header(programs, row_independent=True, name="plain")
    whole["required_features"] = []
    whole["interface"] |= {
        "dims": [],
        "inputs": [{"name": "x", "dtype": "f32", "shape": [2]}],
        "results": [{"name": "y", "dtype": "f32", "shape": [2]}],
        "train": None,
    }
    whole["state"] = {
        "bytes": 64,
        "forward_order": ["w"],
        "tensors": [
            {"name": "w", "kind": "param", "dtype": "f32", "shape": [2], "offset": 0, "init": "ones", "of": None,
             "trained": True}
        ],
    }  # fmt: skip
    path = folder / "plain.dslc"
    path.write_bytes(write_artifact(whole, blobs))
    return path


def write_package(root: Path, name: str = "line") -> Path:
    """``root/NAME/`` as a build leaves it."""
    folder = root / name
    folder.mkdir(parents=True)
    path = write_line(folder, name=name) if name != "plain" else write_plain(folder)
    for file, text in face_files(read_artifact(path).header).items():
        (folder / file).write_text(text)
    return folder


def test_import_dslc_imports_nothing_heavy() -> None:
    heavy = python(
        "import sys, typing; bare = set(sys.modules); import dslc; dslc.__version__; dir(dslc)\n"
        "print(sorted(m for m in set(sys.modules) - bare if not m.startswith('dslc')))"
    )
    tops = {name.split(".")[0] for name in words(heavy)}
    assert tops <= {"__future__", ""}


def words(text: str) -> list[str]:
    return [word.strip("[]', \n") for word in text.split(",")]


def test_names_of_the_face() -> None:
    for name in dslc.__all__:
        assert getattr(dslc, name) is not None
    assert set(dslc.__all__) <= set(dir(dslc))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dslc.nothing  # noqa: B018


def test_loading_and_running_imports_the_standard_library_numpy_and_safetensors_alone(tmp_path: Path) -> None:
    path = write_plain(tmp_path)
    code = (
        "import sys; bare = set(sys.modules)\n"
        "import dslc\n"
        "with dslc.load(sys.argv[1], weights='init') as session:\n"
        "    import numpy; print(session.predict(x=numpy.array([1, 2], 'f4')))\n"
        "    session.weights.save(sys.argv[2]); session.weights.load(sys.argv[2])\n"
        "tops = {m.split('.')[0] for m in set(sys.modules) - bare} - sys.stdlib_module_names\n"
        "print(sorted(t for t in tops if not t.startswith('__')))\n"
        "print(sorted(m for m in sys.modules if m.startswith(('dslc.compiler', 'dslc.dsl'))))"
    )
    result, tops, floors = python(code, path, tmp_path / "w.safetensors").splitlines()
    assert result == "[1. 2.]"
    assert set(words(tops)) <= {"dslc", "numpy", "safetensors"}
    assert floors == "[]"


def test_import_by_name(tmp_path: Path) -> None:
    folder = write_package(tmp_path, "plain")
    code = (
        "import numpy, plain\n"
        "x = numpy.array([1, 2], 'f4')\n"
        "try: plain.predict(x=x)\n"
        "except Exception as error: print(type(error).__name__, error.code)\n"
        "with plain.session(weights='init') as session:\n"
        "    session.weights.save(plain.__path__[0] + '/plain.safetensors')\n"
        "print(plain.predict(x=x))\n"
    )
    assert python(code, path=tmp_path) == "WeightsMissing R304\n[1. 2.]\n"
    code = (
        "import sys, plain; assert 'numpy' not in sys.modules\n"
        "import numpy; print(plain.predict(x=numpy.array([3, 4], 'f4')), plain.predict(x=numpy.array([5, 6], 'f4')))"
    )
    assert python(code, path=tmp_path) == "[3. 4.] [5. 6.]\n"
    assert sorted(p.name for p in folder.iterdir() if p.name != "__pycache__") == [
        "__init__.py", "__init__.pyi", "plain.dslc", "plain.safetensors"]  # fmt: skip


def test_a_child_of_a_fork_during_the_first_call_does_not_wait(tmp_path: Path) -> None:
    """The parent's thread that loads is not in the child, so nobody there would give its lock back."""
    code = """
import os, signal, sys, threading
from dslc.face import Importable
from dslc.base.errors import DslcError
one, inside, over = Importable(sys.argv[1] + "/__init__.py", "gone", "0"), threading.Event(), threading.Event()
real = one.session
def slow(**given):
    inside.set()
    over.wait()
    return real(**given)
one.session = slow
def call():
    try:
        one.predict()
    except DslcError:
        pass
first = threading.Thread(target=call)
first.start()
inside.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    one.session = real
    try:
        one.predict()
    except DslcError as error:
        print(error.code, flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
over.set()
first.join()
"""
    assert python(code, tmp_path).split() == ["R311", "0"]


def test_a_changed_interface_is_refused(tmp_path: Path) -> None:
    folder = write_package(tmp_path, "plain")
    module = folder / "__init__.py"
    digest = read_artifact(folder / "plain.dslc").header["interface_sha256"]
    module.write_text(module.read_text().replace(digest, "0" * 64))
    code = (
        "import numpy, plain\n"
        "for call in (lambda: plain.predict(x=numpy.zeros(2, 'f4')), plain.session):\n"
        "    try: call()\n"
        "    except Exception as error: print(error.code, error.help)\n"
    )
    line = "R308 build both again: dslc build plain.nn\n"
    assert python(code, path=tmp_path) == 2 * line


def test_the_artifact_is_never_reached_through_a_link(tmp_path: Path) -> None:
    folder = write_package(tmp_path, "plain")
    (folder / "plain.dslc").rename(tmp_path / "other.dslc")
    (folder / "plain.dslc").symlink_to(tmp_path / "other.dslc")
    code = "import plain\ntry: plain.session()\nexcept Exception as error: print(error.code)\n"
    assert python(code, path=tmp_path) == "R301\n"


def test_reference_artifacts_get_the_ops_meanings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dslc.compiler.ops import registry

    monkeypatch.setattr(registry, "meanings", lambda: MEANINGS)
    path = write_line(tmp_path)
    x = np.ones((2, FEATURES), np.float32)
    with dslc.load(path, weights="init") as session, load(path, weights="init", meanings=MEANINGS) as plain:
        assert np.array_equal(session.predict(x=x).y, plain.predict(x=x).y)


def test_the_files_of_the_module(tmp_path: Path, golden: Golden) -> None:
    files = face_files(read_artifact(write_line(tmp_path)).header)
    golden("face/line.py.txt", files["__init__.py"])
    golden("face/line.pyi.txt", files["__init__.pyi"])
    (tmp_path / "plain").mkdir()
    golden("face/plain.pyi.txt", face_files(read_artifact(write_plain(tmp_path / "plain")).header)["__init__.pyi"])


@pytest.mark.slow
def test_the_stub_is_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    write_package(tmp_path)
    user = tmp_path / "user.py"
    user.write_text(
        "import line\nimport numpy as np\nx = np.zeros((1, 3), np.float32)\n"
        "y = line.predict(x=x).y\nreveal_type(y.dtype)\n"
        "line.predict(z=x)\n"
        "i = np.zeros((1, 3), np.int32); line.predict(x=i)\n"
        "with line.session(weights='init') as s:\n"
        "    s.train_step(x=x, target=np.zeros(1, np.int32), beta=1.0).loss.hex()\n"
        "    s.evaluate(x=x)\n"
    )
    environment = os.environ | {"MYPYPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir=cache", "user.py"],
        capture_output=True, text=True, timeout=110, check=False, env=environment, cwd=tmp_path,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if "line/__init__.pyi" in line or "user.py" in line]
    errors = [line for line in lines if "error:" in line]
    assert [e.split(":")[0:2] for e in errors] == [["user.py", "6"], ["user.py", "7"], ["user.py", "10"]], done.stdout
    assert any("floating[_32Bit]" in line or "float32" in line for line in lines), done.stdout


@pytest.mark.parametrize(
    "name", ["", "1a", "a-b", "class", "__a", "a" * 65, "json", "dslc", "numpy", "a\nimport os", "é", 'a"']
)
def test_names_that_cannot_be_imported(name: str) -> None:
    with pytest.raises(BuildError) as caught:
        check_artifact_name(name)
    assert caught.value.code == "E0604"


@pytest.mark.parametrize(
    ("where", "name"),
    [("inputs", "step"), ("inputs", "x: int = os.system('x'), y"), ("inputs", "lambda"), ("results", "_y"),
     ("results", 'y"""'), ("train", "lr"), ("scalars", "row")],
)  # fmt: skip
def test_names_never_become_code(tmp_path: Path, where: str, name: str) -> None:
    whole = header([], row_independent=True) | {"interface_sha256": "0" * 64}
    interface = whole["interface"]
    table = {"inputs": interface["inputs"], "results": interface["results"], "train": interface["train"]["inputs"],
             "scalars": interface["train"]["scalars"]}[where]  # fmt: skip
    table[0]["name"] = name
    with pytest.raises(BuildError):
        face_files(whole)


def test_errors_of_a_load_are_dslc_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "none.dslc", tmp_path):
        with pytest.raises(DslcError):
            dslc.load(path)
