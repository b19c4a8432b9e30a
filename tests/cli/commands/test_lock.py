"""The lock in commands: found without being asked, obeyed, required by --locked, shown, checked, compared, verified."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from locks import GPU, block, way

from dslc.cli.output import Settings
from dslc.compiler.check.model import check_file
from dslc.compiler.lock.choices import Tuned, digest_of, problems, tuned
from dslc.compiler.lock.find import FILE, read_lock, write_lock
from dslc.compiler.lock.model import Block, Lock
from dslc.compiler.options import Options, entry_sizes
from dslc.compiler.pipeline import build_options, compile_entry
from dslc.runtime.artifact.file import Artifact, read_artifact, write_artifact

MODEL = """nn 1
dim B in 1..64 = 8
model Net(x: [B, 4]) -> [B, 3] { return x |> linear(6) as fc |> relu |> linear(3) as head }
train Net(label: i32[B]) { loss = cross_entropy(output, label); optimizer = sgd(lr=0.1) }
"""
H100 = "NVIDIA H100 PCIe, 114 SMs, sm_90"
TARGET = ("--target", "sm_90")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.nn").write_text(MODEL)
    monkeypatch.setattr("dslc.compiler.lock.table.shipped", Lock)
    return tmp_path


def keys_of(path: Path, **options: object) -> list[str]:
    """The problems of a model on an H200."""
    checked, asked = check_file(path), replace(Options(target="sm_90"), **options)  # type: ignore[arg-type]
    programs = [compile_entry(checked, entry, sizes, asked)[0] for entry, sizes in entry_sizes(checked, asked)]
    return sorted(problems(programs, "sm_90"))


def measured(keys: Iterable[str], gpu: str = GPU, seconds: float = 2e-6) -> Lock:
    """A lock in which dslc's default kernel won each problem."""
    own = way(seconds)
    return Lock.of(Block(key, gpu, (own,), own, versions="driver 580.159.03") for key in keys)


def write(folder: Path, lock: Lock) -> Lock:
    write_lock(folder / FILE, lock)
    return lock


@pytest.mark.slow
def test_a_build_finds_and_obeys_the_lock_and_says_so_once(dslc: Callable, project: Path) -> None:
    plain = dslc("build", "net.nn", *TARGET)
    keys = keys_of(project / "net.nn")
    assert plain.out.count("choices for sm_90: ") == 1
    assert f"choices for sm_90: {len(keys)} by heuristic; none from a lock" in plain.out
    header = read_artifact(project / "build/net/net.dslc").header
    assert "lock" not in header and header["format"] == [1, 1]

    lock = write(project, measured(keys[1:]))
    ran = dslc("build", "net.nn", *TARGET)
    said = f"choices for sm_90 as NVIDIA H200: {len(keys) - 1} from dslc.lock, 1 by heuristic; "
    said += "`dslc tune` measures the rest"
    assert ran.out.count(said) == 1
    found = dslc("build", "net.nn", *TARGET, "--json").json["choices"]["sm_90"]
    assert found == {"gpu": GPU, "lock": len(keys) - 1, "table": 0, "heuristic": 1, "missing": keys[:1]}
    header = read_artifact(project / "build/net/net.dslc").header
    assert header["format"] == [1, 2]
    assert f"measured   sm_90: {len(keys) - 1} problems on {GPU}, sha256:" in dslc("info", "build/net").out
    expected = {
        "gpu": GPU,
        "sha256": digest_of(lock.blocks),
        "blocks": len(keys) - 1,
        "versions": ["driver 580.159.03"],
    }
    assert header["lock"] == {"sm_90": expected}


@pytest.mark.slow
def test_the_digest_covers_the_blocks_of_the_build_only(dslc: Callable, project: Path) -> None:
    lock = write(project, measured(keys_of(project / "net.nn")))
    path = project / "build/net/net.dslc"
    dslc("build", "net.nn", *TARGET)
    before = path.read_bytes()
    # of another model, of another GPU, another layout: the same bytes
    more = lock.merged([block("add f32[3] f32[3] -> f32[3]"), *measured(["x"], "NVIDIA A100, 108 SMs, sm_80").blocks])
    write(project, more)
    with (project / FILE).open("a") as file:
        file.write("# a note\n")
    assert dslc("build", "net.nn", *TARGET, "--locked").code == 0 and path.read_bytes() == before
    # another time: another digest, and nothing else
    slower = measured([lock.blocks[0].key], seconds=3e-6)
    write(project, lock.merged(slower))
    assert dslc("build", "net.nn", *TARGET, "--locked").code == 0
    old, new = (Artifact.of_bytes(data).header for data in (before, path.read_bytes()))
    assert old["lock"]["sm_90"].pop("sha256") != new["lock"]["sm_90"].pop("sha256")
    assert old == new


def test_a_measured_way_reaches_the_passes(project: Path) -> None:
    keys = keys_of(project / "net.nn")
    options = replace(Options(target="sm_90"), tuned={"sm_90": Tuned(GPU, measured(keys), Lock(), FILE)})
    checked = check_file(project / "net.nn")
    from dslc.compiler.artifact.state_layout import layout_state
    from dslc.compiler.options import precision_of

    layout = layout_state(checked, precision_of(checked, options).params)
    assert build_options(checked, options, layout, "sm_90").choices.ways.keys() == {*keys}
    assert not build_options(checked, options, layout, "cpu").choices.ways


def test_locked_refuses_what_the_lock_lacks_before_it_compiles(
    dslc: Callable, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = dslc("build", "net.nn", *TARGET, "--locked")
    assert ran.code == 4 and "error[R210]: there is no lock" in ran.err and FILE in ran.err
    keys = keys_of(project / "net.nn")
    write(project, measured(keys[1:]))
    with monkeypatch.context() as patch:
        patch.setattr("dslc.compiler.artifact.emit.emit_artifact", None)  # would be a TypeError if it were called
        ran = dslc("build", "net.nn", *TARGET, "--locked")
    assert ran.code == 4 and "error[R210]: the lock lacks 1 problem" in ran.err and keys[0] in ran.err
    assert "dslc tune" in ran.err
    # nor if the cache holds a build that took the heuristic
    assert dslc("build", "net.nn", *TARGET).code == 0
    assert dslc("build", "net.nn", *TARGET, "--locked").code == 4
    write(project, measured(keys))
    assert dslc("build", "net.nn", *TARGET, "--locked").code == 0
    assert dslc("build", "net.nn", "--locked").code == 0  # a build for CPUs reads no lock


def test_a_build_for_cpus_ignores_the_lock(dslc: Callable, project: Path) -> None:
    (project / FILE).write_text("no lock at all")
    ran = dslc("build", "net.nn", "--locked", "--json")
    assert ran.code == 0 and ran.json["choices"] == {}
    ran = dslc("build", "net.nn", *TARGET)
    assert ran.code == 2 and "error[E0607]" in ran.err and f"{FILE}:1" in ran.err


def test_several_gpus_of_one_target(dslc: Callable, project: Path) -> None:
    keys = keys_of(project / "net.nn")
    write(project, measured(keys).merged(measured(keys, H100)))
    ran = dslc("build", "net.nn", *TARGET)
    assert ran.code == 2 and "error[E0608]" in ran.err and GPU in ran.err and H100 in ran.err
    ran = dslc("build", "net.nn", *TARGET, "--gpu", "H100", "--json")
    assert ran.json["choices"]["sm_90"]["gpu"] == H100
    for looks in (("show", "--after", "select"), ("why", "fc"), ("mem", "net.nn", *TARGET), ("build",)):
        (project / "dslc.yaml").write_text("model: net.nn\nbuild: {target: sm_90}\n")
        ran = dslc(*looks)
        assert ran.code == 2 and "error[E0608]" in ran.err and "--gpu 'NVIDIA H100 PCIe'" in ran.err
        assert dslc(*looks, "--gpu", "NVIDIA H100 PCIe").code == 0
    (project / "dslc.yaml").write_text("model: net.nn\nbuild: {target: sm_90, gpu: B200}\n")
    ran = dslc("build")
    assert ran.code == 2 and "nothing was measured on a GPU 'B200'" in ran.err
    (project / "dslc.yaml").write_text("model: net.nn\nbuild: {target: sm_90, gpu: H200, locked: true}\n")
    assert dslc("build", "--json").json["choices"]["sm_90"]["gpu"] == GPU
    for text in ("locked: 1", "locked: maybe", "gpu: 3", "gpu: [a]"):
        (project / "dslc.yaml").write_text(f"model: net.nn\nbuild: {{target: sm_90, {text}}}\n")
        ran = dslc("build")
        assert ran.code == 2 and "error[E0603]" in ran.err and "= help: write " in ran.err, ran.err


def test_the_lock_is_in_the_folder_of_the_project(
    dslc: Callable, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = project / "models"
    inner.mkdir()
    shutil.move(project / "net.nn", inner / "net.nn")
    keys = keys_of(inner / "net.nn")
    write(inner, measured(keys))
    (project / "dslc.yaml").write_text("model: models/net.nn\nbuild: {target: sm_90}\n")
    assert dslc("build", "--json").json["choices"]["sm_90"]["lock"] == 0  # dslc.yaml names the project
    assert dslc("build", "models/net.nn", *TARGET, "--json").json["choices"]["sm_90"]["lock"] == len(keys)
    write(project, measured(keys[:1]))
    assert dslc("build", "--json").json["choices"]["sm_90"]["lock"] == 1
    monkeypatch.chdir(inner)
    assert dslc("build", "--json", "net.nn", *TARGET).json["choices"]["sm_90"]["lock"] == len(keys)


def test_a_shipped_table_serves_what_the_lock_lacks(
    dslc: Callable, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = keys_of(project / "net.nn")
    monkeypatch.setattr("dslc.compiler.lock.table.shipped", lambda: measured(keys[:2]))
    without = dslc("build", "net.nn", *TARGET)
    assert f"choices for sm_90 as NVIDIA H200: 2 from the shipped table, {len(keys) - 2} by heuristic" in without.out
    write(project, measured(keys[1:3]))
    ran = dslc("build", "net.nn", *TARGET, "--json").json["choices"]["sm_90"]
    assert (ran["lock"], ran["table"], ran["heuristic"]) == (2, 1, len(keys) - 3)
    assert ran["missing"] == [keys[0], *keys[3:]]
    assert dslc("build", "net.nn", *TARGET, "--locked").code == 4  # for which a table does not count


def test_an_artifact_is_built_again_if_the_measurements_change(dslc: Callable, project: Path) -> None:
    from dslc.cli.compile import artifact_of
    from dslc.cli.settings import read_config

    (project / "dslc.yaml").write_text("model: net.nn\nbuild: {target: sm_90}\n")
    path = project / "build/net/net.dslc"

    def fresh() -> bool:
        before = path.stat().st_mtime_ns if path.exists() else 0
        with click.Context(click.Command("x"), obj=Settings(json=True)):
            artifact_of(read_config())
        return path.stat().st_mtime_ns == before

    keys = keys_of(project / "net.nn")
    assert not fresh() and fresh()
    write(project, measured(keys))
    assert not fresh() and fresh()
    write(project, measured(keys, seconds=3e-6))
    assert not fresh() and fresh()
    (project / FILE).unlink()
    assert not fresh() and fresh()


@pytest.mark.slow
def test_verify_rebuilds_with_the_lock_and_names_the_digest_that_differs(dslc: Callable, project: Path) -> None:
    keys = keys_of(project / "net.nn")
    lock = write(project, measured(keys))
    dslc("build", "net.nn", *TARGET, "--locked")
    again = ("verify", "build/net", "--rebuild", "net.nn")
    assert dslc(*again).code == 0
    (project / FILE).rename(project / "kept.lock")
    ran = dslc(*again)
    assert ran.code == 1 and "  lock: " in ran.out
    assert dslc(*again, "--lock", "kept.lock").code == 0
    write(project, lock.merged(measured(keys[:1], seconds=5e-6)))
    ran = dslc(*again)
    assert ran.code == 1 and "  lock.sm_90.sha256: " in ran.out and "source_sha256" not in ran.out
    write(project, lock.merged(measured(keys, H100)))
    assert dslc(*again).code == 0  # the artifact says for which GPU it was built
    (project / "net.nn").write_text(MODEL.replace("relu", "tanh"))
    ran = dslc(*again)
    assert ran.code == 1 and "  source_sha256: " in ran.out
    assert dslc("verify", "build/net", "--lock", "kept.lock").code == 2


def test_lock_shows_each_problem(dslc: Callable, project: Path) -> None:
    ran = dslc("lock")
    assert ran.code == 2 and "error[E0607]: there is no lock" in ran.err
    keys = keys_of(project / "net.nn")
    best = replace(block(keys[0], ways=(way(41.2e-6, "cudnn", "eng3_k1=2", 1 << 20),)), default=way(55e-6))
    lock = write(project, measured(keys[1:]).merged([best, *measured(keys[:1], H100).blocks]))
    ran = dslc("lock")
    lines = ran.out.splitlines()
    assert ran.code == 0 and lines[0] == f"{H100}: 1 problem" and f"{GPU}: {len(keys)} problems" in lines
    assert any(line.startswith(keys[0]) and "cudnn eng3_k1=2" in line and "41.2 us" in line and "1.33x" in line
               for line in lines)  # fmt: skip
    found = dslc("lock", "net.nn", "--json").json
    assert found["gpus"] == [H100, GPU] and len(found["problems"]) == len(lock.blocks)
    assert H100 not in dslc("lock", "--gpu", "h200").out
    assert "no measurements of A100; it has those of NVIDIA H100" in dslc("lock", "--gpu", "A100").out
    assert dslc("lock", "net.nn", "other.nn").code == 2


def test_lock_check(dslc: Callable, project: Path) -> None:
    check = ("lock", "--check", "net.nn", *TARGET)
    assert dslc(*check).code == 2
    keys = keys_of(project / "net.nn")
    write(project, measured(keys[2:]).merged([block("add f32[3] f32[3] -> f32[3]")]))
    ran = dslc(*check, "--json")
    assert ran.code == 1
    assert ran.json["targets"] == {
        "sm_90": {"gpu": GPU, "present": len(keys) - 2, "missing": keys[:2], "unused": ["add f32[3] f32[3] -> f32[3]"]}
    }
    ran = dslc(*check)
    assert ran.code == 1 and f"  missing: {keys[0]}" in ran.out and "  unused: add f32[3]" in ran.out
    write(project, measured(keys))
    ran = dslc(*check)
    assert ran.code == 0 and f"{len(keys)} problems in the lock, 0 missing, 0 unused" in ran.out
    assert dslc(*check, "--size", "B=16").code == 1
    assert dslc("lock", "--check", "net.nn").out == ran.out  # the targets of the lock
    write(project, measured(keys, H100.replace("sm_90", "sm_10")))
    ran = dslc("lock", "--check", "net.nn")
    assert ran.code == 2 and "error[E0601]" in ran.err  # it is for no GPU that this version knows
    write(project, measured(keys))
    (project / FILE).rename(project / "kept.lock")
    assert dslc(*check, "--lock", "kept.lock").code == 0


def test_lock_diff(dslc: Callable, project: Path) -> None:
    keys = keys_of(project / "net.nn")
    a, b = measured(keys[:2]), measured(keys[:2], seconds=2.1e-6)
    write_lock(project / "a.lock", a)
    write_lock(project / "b.lock", b)
    ran = dslc("lock", "--diff", "a.lock", "b.lock")
    assert ran.code == 0 and f"another time: {keys[0]}" in ran.out and "2 us -> 2.1 us (+5.0%): own" in ran.out
    assert ran.out.splitlines()[-1] == "2 of 2 problems differ: 2 another time (+5.0% to +5.0%, median +5.0%)"
    write_lock(project / "b.lock", b.merged([block(keys[0], ways=(way(1e-6, "own", "rows=4"),))]))
    ran = dslc("lock", "--diff", "a.lock", "b.lock")
    assert ran.code == 1 and "  A 2 us, 0 B: own\n  B 1 us, 0 B: own rows=4 (-50.0%)" in ran.out
    found = dslc("lock", "--diff", "a.lock", "b.lock", "--json").json["differences"]
    assert [each["kind"] for each in found] == ["another choice", "another time"]
    assert dslc("lock", "--diff", "a.lock", "a.lock").out == "the locks are equal\n"
    assert dslc("lock", "--diff", "a.lock").code == 2 and dslc("lock", "--diff", "--check").code == 2
    ran = dslc("lock", "--diff", "a.lock", "none.lock")
    assert ran.code == 2 and "error[E0607]: there is no lock" in ran.err


def test_a_header_with_a_lock_that_does_not_fit_is_refused(dslc: Callable, project: Path) -> None:
    write(project, measured(keys_of(project / "net.nn")))
    dslc("build", "net.nn", *TARGET)
    found = read_artifact(project / "build/net/net.dslc")
    [said] = found.header["lock"].values()
    kept = {k: v for k, v in found.header.items() if k not in ("blobs", "interface_sha256")}
    from dslc.base.errors import ArtifactError
    from dslc.runtime.artifact.container import Blob

    blobs = [Blob(b["name"], b["kind"], bytes(found.blob(b["name"]))) for b in found.header["blobs"]]
    for name, lock in {
        "lock.sm_80": {"sm_80": said},
        "sha256": {"sm_90": {**said, "sha256": "0"}},
        "more": {"sm_90": {**said, "more": 1}},
    }.items():
        with pytest.raises(ArtifactError, match="R301") as caught:
            Artifact.of_bytes(write_artifact({**kept, "lock": lock}, blobs))
        assert name in str(caught.value)


@pytest.mark.slow
def test_two_locked_builds_elsewhere_give_the_same_bytes(project: Path) -> None:
    """In two folders, with two users' settings, and without a cache: as on two machines."""
    write(project, measured(keys_of(project / "net.nn")))
    made = []
    for number in (1, 2):
        folder = project / ("f" * number * 7)
        folder.mkdir()
        for name in ("net.nn", FILE):
            shutil.copy(project / name, folder)
        env = {**os.environ, "DSLC_CACHE_DIR": "off", "PYTHONHASHSEED": str(number), "HOME": str(folder)}
        asked = [sys.executable, "-m", "dslc", "build", "net.nn", *TARGET, "--locked", "--json"]
        ran = subprocess.run(asked, cwd=folder, env=env, capture_output=True, text=True, check=True)
        assert json.loads(ran.stdout)["choices"]["sm_90"]["missing"] == []
        made.append((folder / "build/net/net.dslc").read_bytes())
    assert made[0] == made[1]


def test_tuned_reads_the_file_that_was_written(project: Path) -> None:
    lock = write(project, measured(["a"]))
    assert tuned("sm_90", read_lock(project / FILE), Lock(), gpu=None, place=FILE).lock == lock


@pytest.fixture
def tuning(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A tuning that measures nothing: ``blocks``, ``refused``, ``left`` are its answer; ``asked`` are its keys."""
    from dslc.tune.outcome import Outcome

    said: dict[str, Any] = {"blocks": [], "refused": {}, "left": []}

    def tune(checked: object, options: Options, settings: Any, *_: object, keys: set[str], **__: object) -> Outcome:
        said["asked"] = (keys, settings.again, options.provider)
        calls = {} if said.get("unknown") else dict.fromkeys(keys, 1)
        return Outcome(GPU, "sm_90", said["blocks"], said["left"], said["refused"], calls)

    monkeypatch.setattr("dslc.tune.tune.tune", tune)
    return said


def test_lock_upgrade_measures_one_problem_again(dslc: Callable, project: Path, tuning: dict[str, Any]) -> None:
    keys = keys_of(project / "net.nn")
    lock = write(project, measured(keys))
    tuning["blocks"] = [*measured(keys[:1], seconds=1e-6).blocks]
    ran = dslc("lock", "--upgrade", keys[0], "net.nn", "--providers", "vendor")
    assert ran.code == 0 and tuning["asked"] == ({keys[0]}, True, "vendor")
    assert f"another time: {keys[0]} on NVIDIA H200\n  2 us -> 1 us (-50.0%)" in ran.out
    assert read_lock(project / FILE) == lock.merged(tuning["blocks"])
    before = (project / FILE).stat().st_mtime_ns
    ran = dslc("lock", "--upgrade", keys[0], "net.nn", "--json")
    assert ran.json == {"path": FILE, "key": keys[0], "not_measured": None, "differences": []}
    assert (project / FILE).stat().st_mtime_ns == before


def test_lock_upgrade_says_why_a_problem_was_not_measured(
    dslc: Callable, project: Path, tuning: dict[str, Any]
) -> None:
    keys = keys_of(project / "net.nn")
    assert dslc("lock", "--upgrade", keys[0], "net.nn").code == 2  # there is no lock
    lock = write(project, measured(["one add", "one mul", "two"]))
    for text, told in (("one", "2 problems of the lock contain this: one add; one mul"), ("three", "no problem")):
        ran = dslc("lock", "--upgrade", text, "net.nn")
        assert ran.code == 2 and told in ran.err and "asked" not in tuning
    tuning["refused"] = {"two": "no way is right"}
    ran = dslc("lock", "--upgrade", "tw", "net.nn")
    assert ran.code == 1 and ran.out == "not measured: two: no way is right\n"
    tuning |= {"refused": {}, "left": ["two"]}
    assert "the time is up" in dslc("lock", "--upgrade", "two", "net.nn").out
    tuning["unknown"] = True
    ran = dslc("lock", "--upgrade", "two", "net.nn")
    assert ran.code == 2 and "does not pose this problem: two" in ran.err
    assert read_lock(project / FILE) == lock
    assert dslc("lock", "--upgrade", "two", "--check", "net.nn").code == 2
