"""``build``, ``info``, ``verify`` and ``mem``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dslc.cli.build_options import options_of
from dslc.cli.commands.verify import options_again
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options, recorded_options
from dslc.compiler.report.slow import Slow
from dslc.runtime.artifact.container import Blob
from dslc.runtime.artifact.file import read_artifact, write_artifact
from dslc.runtime.config.load import load_config

MODEL = """nn 1
dim B in 1..64 = 8

model Net(x: [B, 4], hidden: int = 6) -> [B, 3] {
  return x |> linear(hidden) as fc |> relu |> linear(3) as head
}

train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  metrics   { accuracy = accuracy(output, label) }
  optimizer = sgd(lr=0.1, momentum=0.9)
}
"""
FILES = ["__init__.py", "__init__.pyi", "net.dslc", "report.html"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.nn").write_text(MODEL)
    return tmp_path


def published(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_build_publishes_a_module(dslc: Callable, project: Path) -> None:
    ran = dslc("build", "net.nn", "--json")
    assert ran.code == 0 and ran.json["path"] == "build/net/net.dslc"
    assert published(project / "build/net") == FILES
    entries = {(p["entry"], p["sizes"].get("B")) for p in ran.json["programs"]}
    assert {("init", 8), ("train_step", 8), ("predict", 1), ("predict", 8)} <= entries
    code = (
        "import sys, numpy as np\nsys.path.insert(0, 'build')\nimport net\n"
        "with net.session(weights='init') as s:\n    print(s.predict(x=np.ones((5, 4), np.float32)).shape)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True)
    assert out.stdout == "(5, 3)\n"


def test_a_build_tells_of_slow_lines_also_from_the_cache(
    dslc: Callable, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        Slow("sm_90", "predict", "net.nn", 4 + i, f"op{i}", 2, 1e-3, 0.5, 0.01, "memory", "a\x1b", "b")
        for i in range(5)
    ]
    monkeypatch.setenv("DSLC_CACHE_DIR", str(project / "cache"))
    monkeypatch.setattr("dslc.compiler.report.slow.slow_lines", lambda programs, choices: found)
    for folder, cached in (("one", False), ("two", True)):
        ran = dslc("build", "net.nn", "-o", folder)
        assert ("taken from the cache" in ran.out) == cached
        assert ran.err.count("warning[W011]") == 3 and "2 more such lines stand in the report" in ran.err
        assert (
            "`op0` (2 times) takes 50% of predict's modelled time on sm_90, at 1% of the speed of its memory" in ran.err
        )
        assert "--> net.nn:4\n  = help: b" in ran.err and "\x1b" not in ran.err
        assert "op4, 2 times" in (project / folder / "net" / "report.html").read_text()
    data = dslc("build", "net.nn", "-o", "three", "--json")
    assert data.err == "" and [each["line"] for each in data.json["slow"]] == [4, 5, 6, 7, 8]


def test_a_build_again_is_from_the_cache(dslc: Callable, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSLC_CACHE_DIR", str(project / "cache"))
    first = dslc("build", "net.nn", "--json").json
    second = dslc("build", "net.nn", "-o", "elsewhere", "--json").json
    assert (first["whole_from_cache"], second["whole_from_cache"]) == (False, True)
    count = first["kernels"]["total"]
    assert second["kernels"] == {"total": count, "compiled": 0, "cached": count}
    kept = ("name", "bytes", "state_bytes", "nodes", "contractions", "programs")
    assert {name: second[name] for name in kept} == {name: first[name] for name in kept}
    for name in FILES:
        assert (project / "build/net" / name).read_bytes() == (project / "elsewhere/net" / name).read_bytes()
    assert "from the cache" in dslc("build", "net.nn").out.splitlines()[-1]
    timed = dslc("build", "net.nn", "--report", "timed.html", "--json").json  # for which the passes ran
    assert not timed["whole_from_cache"] and (project / "timed.html").exists()
    assert dslc("verify", "build/net", "--rebuild", "net.nn").code == 0


def test_build_text_and_options(dslc: Callable, project: Path) -> None:
    ran = dslc(
        "build", "net.nn", "--size", "B=16", "-D", "hidden=5", "-o", "out", "--name", "small", "--precision", "f64"
    )
    assert ran.code == 0 and "built out/small/small.dslc" in ran.out
    info = dslc("info", "out/small", "--json").json
    assert info["options"]["args"] == {"hidden": 5} and info["options"]["precision"]["compute"] == "f64"
    assert {p["sizes"]["B"] for p in info["programs"] if p["entry"] == "train_step"} == {16}
    assert info["interface"]["inputs"][0]["dtype"] == "f64"


@pytest.mark.parametrize(
    ("flags", "code", "error"),
    [
        (["--target", "gpx"], 2, "E0601"),
        (["--precision", "tf32"], 2, "E0602"),
        (["--size", "B=65"], 2, "E0304"),
        (["--size", "C=1"], 2, "E0603"),
        (["--name", "json"], 2, "E0604"),
        (["--name", "numpy"], 2, "E0604"),
        (["-D", "hiden=3"], 2, "E0605"),
        (["-D", "hidden=x"], 2, "E0605"),
        (["--bulk", "-1"], 2, "E0603"),
        (["--bulk", "some"], 2, "E0603"),
        (["--bulk", "9999999999"], 2, "E0603"),
        (["--streams", "9"], 2, "E0603"),
        (["--steps-per-launch", "0"], 2, "E0603"),
        (["--steps-per-launch", "1025"], 2, "E0603"),
        (["--steps-per-launch", "all"], 2, "E0603"),
    ],
)
def test_build_refuses(flags: list[str], code: int, error: str, dslc: Callable, project: Path) -> None:
    ran = dslc("build", "net.nn", *flags)
    assert ran.code == code and f"error[{error}]" in ran.err and "= help:" in ran.err
    assert not (project / "build").exists()  # nothing is left of a build that failed


def test_bulk_and_streams_stand_in_the_header(dslc: Callable, project: Path) -> None:
    for given, recorded in (("15", 15), ("0", 0), ("all", "all"), ("auto", "all")):
        assert dslc("build", "net.nn", "--bulk", given, "--streams", "1").code == 0
        options = dslc("info", "build/net", "--json").json["options"]
        assert options["bulk"] == recorded and options["streams"] == 1
    (project / "dslc.yaml").write_text("model: net.nn\nbuild: {bulk: 7, streams: auto, steps_per_launch: 4}\n")
    assert dslc("build").code == 0
    options = dslc("info", "build/net", "--json").json["options"]
    assert options["bulk"] == 7 and options["steps_per_launch"] == 4
    assert dslc("verify", "build/net", "--rebuild", "net.nn").code == 0
    (project / "dslc.yaml").write_text("model: net.nn\nbuild: {streams: 2}\n")
    assert dslc("build").code == 0
    assert dslc("info", "build/net", "--json").json["options"]["streams"] == 2
    assert dslc("verify", "build/net", "--rebuild", "net.nn").code == 0
    (project / "dslc.yaml").write_text("model: net.nn\nbuild: {streams: 0}\n")
    ran = dslc("build")
    assert ran.code == 2 and "1 to 8 streams" in ran.err and "write streams: 2" in ran.err


def test_build_replaces_its_own_and_leaves_weights(dslc: Callable, project: Path) -> None:
    assert dslc("build", "net.nn").code == 0
    (project / "build/net/net.safetensors").write_bytes(b"weights")
    first = (project / "build/net/net.dslc").read_bytes()
    assert dslc("build", "net.nn", "--size", "B=4").code == 0
    assert (project / "build/net/net.dslc").read_bytes() != first
    assert (project / "build/net/net.safetensors").read_bytes() == b"weights"


def test_build_leaves_what_is_not_its_own(dslc: Callable, project: Path) -> None:
    (project / "other.nn").write_text(MODEL.replace("Net", "Other"))
    assert dslc("build", "other.nn", "--name", "net").code == 0
    before = (project / "build/net/net.dslc").read_bytes()
    ran = dslc("build", "net.nn")
    assert ran.code == 6 and "error[R403]" in ran.err and (project / "build/net/net.dslc").read_bytes() == before
    assert dslc("build", "net.nn", "--force").code == 0

    for name, content in (("notes.txt", "mine"), ("__init__.py", "import mine"), ("report.html", "<p>mine")):
        folder = project / f"with_{name}" / "net"
        folder.mkdir(parents=True)
        (folder / name).write_text(content)
        ran = dslc("build", "net.nn", "-o", folder.parent)
        assert ran.code == 6 and "error[R403]" in ran.err and published(folder) == [name]


def test_build_goes_on_where_one_was_killed_before_its_last_file(dslc: Callable, project: Path) -> None:
    assert dslc("build", "net.nn").code == 0
    (project / "build/net/net.dslc").unlink()
    assert dslc("build", "net.nn").code == 0
    assert published(project / "build/net") == FILES


def test_a_build_that_another_is_at_work_on(dslc: Callable, project: Path) -> None:
    from dslc.base.publish import folder_lock

    (project / "build/net").mkdir(parents=True)
    with folder_lock(project / "build/net"):
        ran = dslc("build", "net.nn")
    assert ran.code == 6 and "error[R404]" in ran.err and str(os.getpid()) in ran.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_build_that_is_stopped_gives_its_lock_back(number: int, code: int, project: Path) -> None:
    at, log = "publish.write:1:hang", project / "reached"  # in the middle of what it publishes, with the lock
    env = {**os.environ, "DSLC_CACHE_DIR": str(project / "cache"), "DSLC_FAILPOINT": at, "DSLC_FAILPOINT_LOG": str(log)}
    # as the script `dslc`: `python -m dslc` may end by SIGINT itself, which a shell reports as 130, too
    command = [sys.executable, "-c", "from dslc.cli import main; main()", "build", "net.nn"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as run:
        while run.poll() is None and not log.exists():
            time.sleep(0.002)
        assert (project / "build/net/.dslc-lock").exists()
        run.send_signal(number)
        _, err = run.communicate(timeout=100)
    assert run.returncode == code and "Traceback" not in err, err
    assert not list(project.glob("build/**/.dslc*")) and not (project / "build/net/net.dslc").exists()


def test_a_build_that_cannot_be_written_compiles_nothing(dslc: Callable, project: Path, monkeypatch) -> None:
    (project / "build").write_text("a file")
    monkeypatch.setattr("dslc.compiler.pipeline.build", None)  # would be a TypeError if it were called
    ran = dslc("build", "net.nn")
    assert ran.code == 6 and "error[R402]" in ran.err


def test_targets_of_a_configuration(dslc: Callable, project: Path) -> None:
    config = project / "dslc.yaml"
    for text, names in (("[cpu, sm_90]", {"cpu", "sm_90"}), ('"cpu,sm_90"', {"cpu", "sm_90"}), ("sm_90", {"sm_90"})):
        config.write_text(f"model: net.nn\nbuild: {{target: {text}}}\n")
        assert set(options_of(load_config(config).build).targets) == names
    for text in ("cpu,sm_90", "[]", "[cpu, 3]"):
        config.write_text(f"model: net.nn\nbuild: {{target: {text}, precision: f32}}\n")
        ran = dslc("build")
        assert ran.code == 2 and "E0603" in ran.err and "write target: [cpu, sm_90]" in ran.err, ran.err


def test_info_and_mem(dslc: Callable, project: Path) -> None:
    dslc("build", "net.nn")
    ran = dslc("info", "build/net", "--weights")
    assert ran.code == 0 and "x: f32[B, 4]" in ran.out and "fc.weight" in ran.out and "momentum" in ran.out
    info = dslc("info", "build/net/net.dslc", "--json").json
    assert info["name"] == "net" and info["id"].startswith("sha256:")
    mem = dslc("mem", "build/net", "--json").json
    for program in mem["programs"]:
        assert program["planned"] >= program["lower_bound"] >= 0 and program["ratio"] >= 1
    # parameters and momentum of two layers, each tensor at a multiple of 64 bytes
    assert mem["state_bytes"] >= 2 * 4 * (4 * 6 + 6 + 6 * 3 + 3)
    sizes = [item["bytes"] for item in mem["largest"]]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] <= mem["context_bytes"]
    assert "largest buffers" in dslc("mem", "build/net").out
    assert "largest buffers" not in dslc("mem", "build/net", "--top", "0").out


def test_verify(dslc: Callable, project: Path) -> None:
    dslc("build", "net.nn")
    artifact = project / "build/net/net.dslc"
    assert dslc("verify", artifact).code == 0
    found = dslc("verify", artifact, "--rebuild", "net.nn", "--json").json
    assert found["rebuilt"] and found["sound"]
    assert dslc("verify", artifact, "--digest", found["id"]).code == 0
    ran = dslc("verify", artifact, "--digest", "sha256:" + "0" * 64)
    assert ran.code == 5 and "error[R303]" in ran.err

    (project / "net.nn").write_text(MODEL.replace("relu", "tanh"))
    ran = dslc("verify", artifact, "--rebuild", "net.nn")
    assert ran.code == 1 and "source_sha256" in ran.out

    content = bytearray(artifact.read_bytes())
    content[len(content) // 2] ^= 1
    artifact.write_bytes(content)
    for command in ("verify", "info", "mem"):
        ran = dslc(command, artifact)
        assert ran.code == 5 and "error[R301]" in ran.err
    ran = dslc("verify", project / "none.dslc", "--json")
    assert ran.code == 5 and json.loads(ran.out)["errors"][0]["code"] == "R311"


@pytest.mark.slow
def test_verify_names_the_kernel_whose_bytes_differ(dslc: Callable, project: Path) -> None:
    dslc("build", "net.nn", "--target", "sm_90")
    path = project / "build/net/net.dslc"
    found = read_artifact(path)
    ptx, other = found.blobs("ptx")[:2]
    data = {blob["name"]: bytes(found.blob(blob["name"])) for blob in found.header["blobs"]}
    data[ptx] = data[ptx].rstrip() + b"\n\n"
    header = {k: v for k, v in found.header.items() if k not in ("blobs", "format", "interface_sha256")}
    header["toolchain"] = {**header["toolchain"], "nvidia-cuda-nvrtc": "13.0.1"}
    path.write_bytes(
        write_artifact(header, [Blob(b["name"], b["kind"], data[b["name"]]) for b in found.header["blobs"]])
    )
    ran = dslc("verify", path, "--rebuild", "net.nn")
    assert ran.code == 1 and f"ptx {ptx}: other bytes, the kernel of " in ran.out and "net.nn:" in ran.out
    assert "toolchain.nvidia-cuda-nvrtc: 13.0.1 in the artifact, 13.0." in ran.out
    assert other not in ran.out and "toolchain.python" not in ran.out


@pytest.mark.parametrize("value", [None, 7, -1, "x", [], {"a": 1}, {"train": 3}, {"train": {"B": "x"}}, ...], ids=str)
def test_verify_refuses_options_that_no_build_records(dslc: Callable, project: Path, value: Any) -> None:
    """An artifact of unknown origin, with valid digests. ``...``: the option is missing."""
    dslc("build", "net.nn", "--providers", "reference")
    path = project / "build/net/net.dslc"
    found = read_artifact(path)
    blobs = [Blob(b["name"], b["kind"], bytes(found.blob(b["name"]))) for b in found.header["blobs"]]
    header = {k: v for k, v in found.header.items() if k not in ("blobs", "format", "interface_sha256")}
    for name, good in found.header["options"].items():
        options = {k: v if k != name else value for k, v in header["options"].items() if k != name or value is not ...}
        path.write_bytes(write_artifact({**header, "options": options}, blobs))
        ran = dslc("verify", path, "--rebuild", "net.nn")
        number_or_word = name in ("bulk", "streams", "mirror") and type(value) in (int, str)
        refused = type(value) is not type(good) and not number_or_word
        assert ran.code == 5 if refused else ran.code in (0, 1, 2, 5, 6), (name, ran.err)
        assert ran.code != 5 or "options" in ran.err


def test_verify_rebuilds_with_the_options_of_the_artifact(dslc: Callable, project: Path) -> None:
    flags = (
        "--size",
        "train:B=4",
        "--size",
        "predict:B=2,3",
        "-D",
        "hidden=7",
        "--precision",
        "f64",
        "--name",
        "other",
    )
    assert dslc("build", "net.nn", *flags).code == 0
    assert dslc("verify", "build/other", "--rebuild", "net.nn").code == 0


@pytest.mark.parametrize("asked", ["f32", "f64", "bf16", "f16", None])
@pytest.mark.parametrize(
    "section", ["", "precision { compute = bf16 }\n", "precision { compute = f16; params = f64 }\n"]
)
def test_verify_rebuilds_in_the_precision_of_the_artifact(tmp_path: Path, asked: str | None, section: str) -> None:
    """That of the option, or of the source."""
    (tmp_path / "net.nn").write_text(MODEL.replace("nn 1\n", f"nn 1\n{section}"))
    checked = check_file(tmp_path / "net.nn")
    recorded = recorded_options(checked, Options(target="sm_90", precision=asked))
    assert recorded_options(checked, options_again(recorded, "net")) == recorded


def test_verify_looks_into_every_plan(dslc: Callable, project: Path) -> None:
    """Digests that fit do not help a plan that makes no sense."""
    from dslc.runtime.artifact.container import Blob, pack
    from dslc.runtime.artifact.file import read_artifact

    dslc("build", "net.nn")
    artifact = project / "build/net/net.dslc"
    header = dict(read_artifact(artifact).header)
    listed = header.pop("blobs")
    blobs = [Blob(b["name"], b["kind"], bytes(read_artifact(artifact).blob(b["name"]))) for b in listed]
    last = max(i for i, blob in enumerate(blobs) if blob.kind == "plan")
    blobs[last] = Blob(blobs[last].name, "plan", b"{}")
    artifact.write_bytes(pack(header, blobs))
    assert dslc("info", artifact).code == 0
    ran = dslc("verify", artifact)
    assert ran.code == 5 and "error[R301]" in ran.err
