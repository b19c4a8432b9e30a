"""The sweep of benchmarks/op_sweep: it covers the language, its cases build, and their numbers are those of PyTorch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from op_sweep import data, worker
from op_sweep.build import level_of, read, recipe, written
from op_sweep.case import FLOATS, GRADIENT, SIZES, Run, Tensor, runs
from op_sweep.cases import WITHOUT, every
from op_sweep.command import main, wanted
from op_sweep.command import parsed as asked
from op_sweep.drawn import cases_of
from op_sweep.measure import difference
from op_sweep.ours import OnHost
from op_sweep.report import report, summary

from dslc.compiler.ir.function import Function
from dslc.compiler.ops.registry import functions

CASES = every(SIZES["test"])
QUICK = [run for run in runs(CASES, ["f32"]) if run.quick]


def built(run: Run, folder: Path, target: str = "cpu") -> str:
    made = recipe(run, target, "own", level_of(target), folder)
    return written({run.name: made}, folder)[run.name]


def test_each_function_has_cases_or_a_reason() -> None:
    own = {name for name, f in functions().items() if type(f).__module__.startswith("dslc.compiler.ops.")}
    assert all(isinstance(functions()[name], Function) for name in own)
    covered = {case.function for case in CASES}
    assert not covered & WITHOUT.keys()
    assert covered | WITHOUT.keys() == own


@pytest.mark.parametrize("sizes", SIZES)
def test_names_are_different(sizes: str) -> None:
    names = Counter(run.name for dtype in FLOATS for run in runs(every(SIZES[sizes]), [dtype]) if run.case.has_floats)
    assert [name for name, count in names.items() if count > 1] == []


def test_the_short_sweep_has_every_function() -> None:
    assert {run.case.function for run in QUICK} == {case.function for case in CASES}
    assert 300 <= len(QUICK) <= 450


def test_drawn_cases_are_those_of_their_name(tmp_path: Path) -> None:
    """One of a function, as many of each family, with sizes that no list has; all can be built."""
    cases = cases_of("drawn-7-18")
    assert [(x.function, x.shape) for x in cases] == [(x.function, x.shape) for x in cases_of("drawn-7-18")]
    assert {x.shape for x in cases}.isdisjoint(x.shape for x in cases_of("drawn-8-18"))
    assert len({x.function for x in cases}) == len(cases) == 18
    for run in runs(cases, ["bf16"]):
        recipe(run, "sm_90", "own", level_of("sm_90"), tmp_path)
    selected = wanted(asked(["--sizes", "drawn-7-18", "--dtype", "bf16"]))
    assert [run.name for run in selected] == [run.name for run in runs(cases, ["bf16"])]
    with pytest.raises(SystemExit):
        asked(["--sizes", "drawn-7"])


def test_gradients_are_those_of_all_that_has_one(tmp_path: Path) -> None:
    """A case with gradients names inputs that are floats."""
    for case in CASES:
        assert all(case.inputs[name].dtype == "float" for name in case.wrt), case.function


RUNS = ("linear tiny rows f32 gradient", "sort tiny rows f32 forward", "dropout tiny rows f32 gradient",
        "batchnorm tiny channels last f32 gradient")  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_a_case_runs(name: str, tmp_path: Path) -> None:
    run = worker.table("test")[name]
    opened = OnHost(run, built(run, tmp_path))
    results = opened.results()
    assert len(results) == len(run.case.results) + (len(run.case.wrt) if run.direction == GRADIENT else 0)
    assert all(np.isfinite(x).all() and np.ptp(x) > 0 for x in results)
    assert all(seconds > 0 for seconds in opened.times(0.0))
    assert opened.about["moved"] > 0 and opened.about["roof"] > 0


def test_16_bit_inputs_and_results_have_16_bits(tmp_path: Path) -> None:
    run = worker.table("test")["relu tiny rows bf16 gradient"]
    plan = read(Path(built(run, tmp_path))).plan
    ports = [*plan.inputs, *plan.outputs]
    assert len(ports) == 4 and {plan.buffers[port.buffer].dtype for port in ports} == {"bf16"}


def test_numbers_of_a_kind_are_in_its_range() -> None:
    for kind, low, high in (("positive", 0.1, 2), ("unit", -0.9, 0.9), ("chance", 0.05, 0.95), ("above", 1.1, 3)):
        x = data.drawn("x", Tensor((4, 500), kind))
        assert low <= x.min() < x.max() <= high and x.dtype == np.float32
    order = data.drawn("i", Tensor((3, 7), "apart", "i32", 9))
    assert all(len(set(line)) == 7 and set(line) <= set(range(9)) for line in order.tolist())
    boxes = data.drawn("b", Tensor((50, 4), "boxes", high=16))
    assert (boxes[:, 2:] > boxes[:, :2]).all() and boxes.max() <= 16


def test_bf16_is_rounded_to_the_nearest_even() -> None:
    x = np.array([1, 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8 - 2**-20], np.float32)
    back = data.shown(data.stored(x, "bf16"), "bf16")
    np.testing.assert_array_equal(back, [1, 1, 1 + 2**-6, -1 - 2**-7])


def test_a_difference_is_seen() -> None:
    y = np.array([1.0, -4.0, np.nan])
    assert difference([y], [y]) == 0
    assert difference([y + np.array([0, 1, 0])], [y]) == 0.25
    assert difference([np.array([1.0, -4.0, 2.0])], [y]) == float("inf")
    assert difference([y], [y, y]) == difference([y[:2]], [y]) == float("inf")


def test_a_selection_of_cases(tmp_path: Path) -> None:
    found = wanted(asked(["--only", "relu", "--dtype", "bf16", "--shape", "columns"]))
    assert {run.name for run in found} == {f"relu huge columns bf16 {way}" for way in ("forward", "gradient")}
    (tmp_path / "cases").write_text("relu tiny\n\nexp huge rows bf16 forward\n")
    found = wanted(asked(["--dtype", "bf16", "--cases", str(tmp_path / "cases")]))
    assert {run.name for run in found} == {
        "relu tiny rows bf16 forward", "relu tiny rows bf16 gradient", "exp huge rows bf16 forward"
    }  # fmt: skip
    with pytest.raises(SystemExit, match="no cases of rleu"):
        wanted(asked(["--only", "rleu"]))


def row(function: str, ratio: float) -> dict[str, Any]:
    return {"case": f"{function} huge", "function": function, "ratio": ratio, "roof": 0.5, "ours us": 2.0,
            "torch us": 2 * ratio, "moved": 8, "work": 0}  # fmt: skip


def test_the_report_lists_what_is_slow() -> None:
    rows = [row("sort", 0.4), row("relu", 1.6), row("topk", 0.7), {"case": "nms", "function": "nms", "failed": "why"}]
    assert "3 rows; below 0.8 of PyTorch 2 (66.7%), below 0.5 1" in summary(rows)
    text = report(rows)
    assert text.index("sort huge") < text.index("topk huge") and "relu huge" not in text and "failed: nms: why" in text


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_the_numbers_are_those_of_torch(dtype: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    out = tmp_path / "rows.jsonl"
    words = [
        "--sizes",
        "test",
        "--dtype",
        dtype,
        "--rounds",
        "1",
        "--seconds",
        "0",
        "--out",
        str(out),
        "--threads",
        "2",
    ]
    assert main(words) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) > 300 and all(each["ratio"] > 0 for each in rows)
    assert main(words) == 0  # nothing is left
    assert len(out.read_text().splitlines()) == len(rows)
