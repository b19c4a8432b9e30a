"""A model tuned on a fake GPU: each problem once, those of the most time first; the budget, resuming, interrupts."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from places import with_support
from tuning import planted

from dslc.base.cache import Cache
from dslc.cli.app import run
from dslc.cli.commands import tune as command
from dslc.compiler.check.model import Checked, check_file
from dslc.compiler.codegen.targets import target_of
from dslc.compiler.ir.choice import Choice, Measured, key_of
from dslc.compiler.ir.graph import Node
from dslc.compiler.lock.find import read_lock
from dslc.compiler.lock.model import Block, Lock
from dslc.compiler.lock.text import format_lock
from dslc.compiler.ops.compound.contraction import summands
from dslc.compiler.options import Options, entry_sizes
from dslc.compiler.pipeline import compile_entry
from dslc.compiler.toolchain.kernel_compiler import KernelCompiler
from dslc.tune import client, supply
from dslc.tune import tune as module
from dslc.tune.client import Client
from dslc.tune.outcome import Outcome
from dslc.tune.problems import gaining_first, problems
from dslc.tune.settings import UNTRIED, Settings
from dslc.tune.tune import tune

TEXT = """nn 1
dim B in 1..64 = 32

model Two(x: [B, 256]) -> [B, 64] {
  return x |> linear(512) |> relu |> linear(64)
}
"""
OPTIONS = Options(target="sm_90", sizes={"predict": {"B": (32,)}})
LONG = 3000.0  #: seconds of a budget that no machine uses up, however much it has to do
VENDOR = Options(target="sm_90", provider="vendor", precision="bf16", sizes={"predict": {"B": (32,)}})


@pytest.fixture(autouse=True)
def _worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", with_support()["PYTHONPATH"])
    monkeypatch.setenv("DSLC_TEST_BLIND", "1")
    monkeypatch.setenv("DSLC_TEST_LIBRARIES", "1")
    monkeypatch.setattr(client, "WORKER", planted.WORKER)
    # Each test has a cache of its own, but what one has compiled serves the others of this run.
    compiled = Cache(Path(os.environ["DSLC_TEST_CACHE"]))
    monkeypatch.setattr(
        supply, "KernelCompiler", lambda cache, *args, **kwargs: KernelCompiler(compiled, *args, **kwargs)
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "two.nn"
    path.write_text(TEXT)
    return path


@pytest.fixture
def checked(file: Path) -> Checked:
    return check_file(str(file))


def tuned(checked: Checked, cache: Path, options: Options = OPTIONS, **settings: Any) -> Outcome:
    return tune(checked, options, Settings(**{"budget": LONG, **settings}), Cache(cache))


def test_the_problems_are_the_nodes_of_the_entries(checked: Checked) -> None:
    found = problems(checked, OPTIONS, "sm_90")
    nodes = [
        key_of(node)
        for entry, sizes in entry_sizes(checked, OPTIONS)
        if entry != "init"
        for node in compile_entry(checked, entry, sizes, OPTIONS)[0].graph.nodes
        if not node.op.view
    ]
    computed = [p for p in found if p.calls]
    assert {p.key for p in computed} == {*nodes} and sum(p.calls for p in computed) == len(nodes)
    assert [p.weight for p in computed] == sorted((p.weight for p in computed), reverse=True)
    assert found[: len(computed)] == computed
    ranked = gaining_first(found, "sm_90")
    several = [len(target_of("sm_90").variants(p.node)) > 1 for p in ranked]
    count = sum(several[: len(computed)])
    assert {*ranked[: len(computed)]} == {*computed} and several[:count] == [True] * count
    assert [p.weight for p in ranked[:count]] == sorted((p.weight for p in ranked[:count]), reverse=True)


@pytest.mark.parametrize("options", [OPTIONS, replace(VENDOR, precision="f32")], ids=["own", "vendor"])
def test_a_contraction_its_epilogue_and_both_as_one_are_problems(options: Options, checked: Checked) -> None:
    found = problems(checked, options, "sm_90")
    both = [p for p in found if p.node.op.name == "contraction"]
    vendor = options.provider == "vendor"
    assert both and all(p.vendor == (vendor and summands(p.node) is not None) for p in both)
    assert {bool(p.calls) for p in both if not p.vendor} == {not vendor}
    apart = {key_of(n) for n in _unfused(checked)}
    assert apart and apart <= {p.key for p in found}


def _unfused(checked: Checked) -> list[Node]:
    """The nodes of the prediction before any epilogue is fused."""
    options = replace(VENDOR, precision="f32")
    sizes = next(sizes for entry, sizes in entry_sizes(checked, options) if entry == "predict")
    return [
        n for n in compile_entry(checked, "predict", sizes, options, after="epilogue")[0].graph.nodes if not n.op.view
    ]


@pytest.mark.slow
def test_each_problem_is_measured_once_then_found(checked: Checked, tmp_path: Path) -> None:
    first = tuned(checked, tmp_path / "cache")
    wanted = {p.key for p in problems(checked, OPTIONS, "sm_90")}
    assert {block.key for block in first.blocks} == wanted and first.tuned == len(wanted) and not first.refused
    second = tuned(checked, tmp_path / "cache")
    assert (second.tuned, second.found) == (0, len(wanted))
    assert format_lock(Lock.of(second.blocks)) == format_lock(Lock.of(first.blocks))


@pytest.mark.slow
def test_only_the_asked_problems_are_measured(checked: Checked, tmp_path: Path) -> None:
    key = problems(checked, OPTIONS, "sm_90")[1].key
    found = tune(checked, OPTIONS, Settings(budget=LONG), Cache(tmp_path / "cache"), keys={key, "another"})
    assert [block.key for block in found.blocks] == [key] and {*found.calls} == {key} and found.tuned == 1


@pytest.mark.slow
def test_libraries_and_own_variants_are_candidates(checked: Checked, tmp_path: Path) -> None:
    found = tuned(checked, tmp_path / "cache", VENDOR)
    assert not found.refused
    products = [block for block in found.blocks if block.key.startswith("matmul")]
    assert products and all(block.default is not None for block in products)
    assert {block.default.choice.provider for block in products if block.default} == {"cublaslt"}
    assert all("cublaslt" in block.versions for block in products)
    assert all(any(way.choice.provider == "own" for way in block.ways) for block in products)


@pytest.mark.slow
def test_a_library_that_cannot_list_its_ways_is_said(
    checked: Checked, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own choice is then not known, so a block has no default."""
    monkeypatch.setenv("DSLC_TEST_LIBRARIES", "missing")
    monkeypatch.setenv("DSLC_CACHE_DIR", str(tmp_path / "cache"))
    for _ in range(2):  # measured, then found
        assert (
            run(["--json", "tune", "--budget", f"{LONG:.0f}s", str(file), "--providers", "vendor", "--size", "B=32"])
            == 0
        )
        said = json.loads(capsys.readouterr().out)
        [(why, count)] = said["unlisted"].items()
        assert why == "cublaslt cannot list its ways: the library is not installed" and count > 1
    blocks = read_lock(file.parent / "dslc.lock").blocks
    assert len([block for block in blocks if why in block.rejected]) == count
    assert all((block.default is None) == (why in block.rejected) for block in blocks)
    assert cli(str(file), "--providers", "vendor", "--size", "B=32") == 0
    text = capsys.readouterr().out
    assert text.count("cannot list its ways") == 1 and "were rejected" not in text


@pytest.mark.slow
def test_off_measures_the_defaults_alone(checked: Checked, tmp_path: Path) -> None:
    found = tuned(checked, tmp_path / "cache", VENDOR, mode="off", workspace_limit=1 << 30)
    assert found.blocks and all(block.ways == (block.default,) for block in found.blocks)


FEW = """nn 1
dim B in 1..64 = 32

model Few(x: [B, 8, 16, 16]) -> [B, 32, 16, 16] {
  return x |> conv(32, 3, pad=1, bias=false)
}
"""


@pytest.mark.slow
def test_a_library_is_a_candidate_where_own_kernels_are_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "few.nn"
    path.write_text(FEW)
    checked = check_file(str(path))
    [block] = [b for b in tuned(checked, tmp_path / "cache", VENDOR).blocks if b.key.startswith("conv_last")]
    assert block.default is not None and block.default.choice.provider == "own"
    assert "cudnn" in block.versions
    off = tuned(checked, tmp_path / "off", VENDOR, mode="off")
    assert [("cudnn" in b.versions, len(b.ways)) for b in off.blocks if b.key == block.key] == [(False, 1)]
    monkeypatch.setenv("DSLC_TEST_LIBRARIES", "missing")
    alone = tuned(checked, tmp_path / "alone", VENDOR)
    assert [b.default is not None for b in alone.blocks if b.key == block.key] == [True] and not alone.unlisted


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "limit"), [("limited", 0), ("limited", 1 << 20), ("fastest", 0)])
def test_both_directions_of_the_limit(mode: str, limit: int, checked: Checked, tmp_path: Path) -> None:
    found = tuned(checked, tmp_path / "cache", VENDOR, mode=mode, workspace_limit=limit)
    needs = [way.choice.workspace for block in found.blocks for way in block.ways]
    assert found.blocks
    if mode == "limited":
        assert max(needs) <= limit
    else:
        all_ways = tuned(checked, tmp_path / "other", VENDOR, mode="limited", workspace_limit=1 << 40)
        assert {b.key for b in all_ways.blocks} == {b.key for b in found.blocks}


@pytest.mark.slow
def test_each_run_gets_further_however_small_the_budget_is(checked: Checked, tmp_path: Path) -> None:
    wanted = [p.key for p in gaining_first(problems(checked, OPTIONS, "sm_90"), "sm_90")]
    for number in range(len(wanted)):
        found = tuned(checked, tmp_path / "cache", budget=0.01)
        assert (found.tuned, found.found) == (1, number)
        assert {block.key for block in found.blocks} == {*wanted[: number + 1]}
        assert found.left == wanted[number + 1 :]


@pytest.mark.slow
def test_a_short_run_says_how_to_go_on(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DSLC_CACHE_DIR", str(tmp_path / "cache"))
    for number in (1, 2):
        assert cli(str(file), "--size", "B=32", "--budget", "0.01s") == 0
        said = capsys.readouterr().out
        assert "the time is up: " in said and "`dslc tune` again goes on with them, which takes about" in said
        assert len(read_lock(file.parent / "dslc.lock").blocks) == number


@pytest.mark.slow
def test_an_interrupt_keeps_what_was_measured_and_the_next_run_goes_on(checked: Checked, tmp_path: Path) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    cache = Cache(tmp_path / "cache")
    first = tune(checked, OPTIONS, Settings(budget=LONG), cache, progress=interrupt)
    assert first.interrupted and len(first.blocks) == 1 and first.left
    second = tune(checked, OPTIONS, Settings(budget=LONG), cache)
    assert second.found == 1 and second.tuned == len(first.left) and not second.left


@pytest.mark.slow
def test_two_at_a_time_measure_each_problem_once(checked: Checked, tmp_path: Path) -> None:
    outcomes: list[Outcome] = []
    threads = [threading.Thread(target=lambda: outcomes.append(tuned(checked, tmp_path / "cache"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count = len(problems(checked, OPTIONS, "sm_90"))
    assert sum(o.tuned for o in outcomes) == count and sum(o.found for o in outcomes) == count


@pytest.mark.slow
def test_nothing_is_left_on_the_disk_and_no_process(
    checked: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supply, "KernelCompiler", KernelCompiler)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    made: list[Client] = []

    def make(hello: dict[str, Any]) -> Client:
        made.append(Client(hello))
        return made[-1]

    tune(checked, OPTIONS, Settings(budget=LONG), Cache(None), client=make)
    assert not [*tmp_path.glob("dslc-tune-*")] and not made[0].running


@pytest.mark.slow
def test_a_gpu_that_another_process_measures_on_is_waited_for(checked: Checked, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    claim = cache.claim("tuning_gpu", ("0000:01:00.0",))
    with claim, claim:
        assert claim.take()
        found = tune(checked, OPTIONS, Settings(budget=6.0), Cache(tmp_path / "cache"))
    assert not found.blocks and found.left


def cli(*args: str) -> int:
    return run(["tune", "--budget", f"{LONG:.0f}s", *args])


@pytest.mark.slow
def test_the_command_writes_a_lock_that_a_build_obeys(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(str(file), "--size", "B=32") == 0
    said = capsys.readouterr().out
    assert "problems on Fake GPU, 132 SMs, sm_90" in said and "dslc.lock" in said
    lock = read_lock(file.parent / "dslc.lock")
    assert lock.blocks
    assert run(["build", str(file), "--target", "sm_90", "--size", "B=32", "--locked", "-o", str(file.parent)]) == 0
    before = (file.parent / "dslc.lock").read_bytes()
    assert cli(str(file), "--size", "B=32") == 0
    assert (file.parent / "dslc.lock").read_bytes() == before
    assert run(["lock", "--check", str(file), "--target", "sm_90", "--size", "B=32"]) == 0
    key = lock.blocks[0].key
    assert run(["lock", "--upgrade", key, str(file), "--size", "B=32"]) == 0
    assert {block.key for block in read_lock(file.parent / "dslc.lock").blocks} == {block.key for block in lock.blocks}


@pytest.mark.parametrize("wrong", [["--budget", "soon"], ["--workspace-limit", "much"], ["--mode", "best"]])
def test_wrong_options_are_usage_errors(wrong: list[str], file: Path) -> None:
    assert cli(str(file), *wrong) == 2


def test_without_a_gpu_it_says_so(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "WORKER", _no_gpu())
    assert cli(str(file)) == 4
    assert "R201" in capsys.readouterr().err


def _no_gpu() -> tuple[str, ...]:
    import sys

    return (sys.executable, "-P", "-m", "dslc.tune.worker")


def test_the_problems_are_listed_while_the_comparing_kernels_are_compiled(
    checked: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = threading.Event()

    def listing(*args: Any, **more: Any) -> list[Any]:
        listed.set()
        return []

    def comparer(*args: Any) -> Path:
        assert listed.wait(60.0), "the kernels are compiled first"
        return tmp_path

    monkeypatch.setattr(module, "problems", listing)
    monkeypatch.setattr(module, "compile_comparer", comparer)
    assert not tuned(checked, tmp_path / "cache").blocks and listed.is_set()


def test_what_there_was_no_time_for_is_no_wrong_way() -> None:
    ways = (Measured(Choice("own"), 1e-6),)
    wrong = "own split=1: wrong result (error 1, on average 1)"
    reasons = {"a": (f"3 ways {UNTRIED}", wrong), "b": (f"1 ways {UNTRIED}",), "c": ()}
    blocks = [Block(key, "GPU", ways, ways[0], rejected=rejected) for key, rejected in reasons.items()]
    text = command._text(Path("dslc.lock"), Outcome("GPU", "sm_90", blocks, calls=dict.fromkeys("abc", 1)), True)
    assert "1 wrong or failing ways were rejected; dslc.lock lists them" in text
    assert "2 problems have more ways than there was time for: --again with a longer --budget" in text
