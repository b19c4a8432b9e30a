"""``dslc bench``: what is measured of a step, rows against the roof, the gate; on the CPU and on a fake GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from artifacts import line_model
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.gpu_model import write_gpu_line

from dslc.cli.app import run
from dslc.cli.commands import bench as bench_command
from dslc.cli.views import bench
from dslc.runtime.artifact.instructions import Copy, Kernel
from dslc.runtime.artifact.plan import Buffer, Plan, Work
from dslc.runtime.cuda import device as devices
from dslc.runtime.cuda import timing
from dslc.runtime.cuda.device import Device
from dslc.runtime.cuda.libraries.checked_calls import Noted
from dslc.runtime.session.backend import Measured

MODEL = """nn 1
dim B in 1..64 = 8
model Net(x: [B, 4], hidden: int = 6) -> [B, 3] {
  return x |> linear(hidden) as fc |> relu |> linear(3) as head
}
train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  optimizer = sgd(lr=0.1, momentum=0.9)
}
"""


@pytest.fixture
def dslc(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*args: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run([str(arg) for arg in args])
        return code, *capfd.readouterr()

    return call


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "dslc.runtime.cpu.executor.machine_roof", lambda: {"copy": 1e10, "matrix32": 1e11, "matrix64": 5e10}
    )
    (tmp_path / "net.nn").write_text(MODEL)
    return tmp_path


def test_rows_and_their_roof() -> None:
    """A product of bf16, two launches of one node, and a copy: times, shares and lines as counted by hand."""
    buffers = tuple(Buffer("work", 1024 * i, d, (16,)) for i, d in enumerate(("bf16", "f32", "bf16")))

    def kernel(where: int, reads: int, writes: int) -> Kernel:
        return Kernel("code", "k", (1, 1, 1), (32, 1, 1), 0, (("in", reads), ("out", writes)), 0, where)

    plan = Plan(
        buffers, (), (), (), (), (kernel(0, 0, 2), kernel(1, 1, 2), kernel(1, 2, 1), Copy(0, 2, 0, 2)),
        ("fc.a net.nn:3", "fc.b net.nn:3", "end"),
        (Work(0, "matmul", 4000, 100), Work(1, "softmax", 600, 3000), Work(3, "copy", 0, 64)),
    )  # fmt: skip
    roof = {"copy": 1e9, "matrix16": 1e12, "matrix32": 1e9, "f32": 1e9}
    times = {0: [2e-6, 1e-6, 3e-6], 1: [1e-6, 1e-6, 5e-6], 2: [3e-6, 9e-6, 1e-6], 3: [1e-7] * 3}
    rows = bench.node_rows(plan, Measured(times, roof))
    assert [(r.what, r.line) for r in rows] == [
        ("matmul fc.a", "net.nn:3"),
        ("softmax fc.b", "net.nn:3"),
        ("copy end", "-"),
    ]
    assert [r.seconds for r in rows] == pytest.approx([2e-6, 6e-6, 1e-7])
    assert [r.roof for r in rows] == pytest.approx([1e-7, 3e-6, 64e-9])  # moved bytes, though the product is of bf16
    assert [r.of_roof for r in rows] == pytest.approx([0.05, 0.5, 0.64])
    first, last = bench.line_rows(rows)
    assert (first.what, first.line, first.flops, first.bytes) == ("2 nodes", "net.nn:3", 4600, 3100)
    assert first.seconds == pytest.approx(8e-6) and first.of_roof == pytest.approx(3.1e-6 / 8e-6) and last.line == "-"
    slow = bench.node_rows(plan, Measured(times, {**roof, "matrix16": 1e9, "f32": 1e8}))
    assert [r.roof for r in slow] == pytest.approx([4e-6, 6e-6, 64e-9])  # by arithmetic
    wide = replace(plan, buffers=tuple(replace(b, dtype="f32") for b in buffers))
    roofs = [bench.node_rows(wide, Measured(times, {**roof, "matrix16": 4e9}), tf32)[0].roof for tf32 in (False, True)]
    assert roofs == pytest.approx([4e-6, 2e-6])  # half the rate of 16 bits
    assert bench.census(plan) == {"kernels": 3, "library calls": 0, "copies and fills": 1, "ops through numpy": 0}


def test_on_the_cpu(dslc: Any, project: Path) -> None:
    code, out, err = dslc("bench", "net.nn", "--device", "cpu", "--size", "B=4", "--seconds", "0.1", "--json")
    assert code == 0, out + err
    data = json.loads(out)
    assert (data["entry"], data["sizes"], data["device"]) == ("train_step", {"B": 4}, "cpu")
    step = data["step"]
    assert 0 < step["min"] <= step["p10"] <= step["median"] <= step["p90"] and step["steps"] >= 5
    assert step["rows_per_second"] == pytest.approx(4 / step["median"])
    assert {"net.nn:4", "net.nn:7"} <= {row["line"] for row in data["lines"]}
    assert sum(r["seconds"] for r in data["lines"]) == pytest.approx(data["nodes_seconds"])
    products = [r for r in data["nodes"] if r["what"].startswith("matmul")]
    assert sorted(r["flops"] for r in products) == sorted([2 * 4 * 4 * 6] * 2 + [2 * 4 * 6 * 3] * 3)
    assert sum(data["instructions"].values()) >= len(data["nodes"]) > 5 and not (project / "build").exists()
    code, out, _ = dslc("bench", "net.nn", "--device", "cpu", "--entry", "predict", "--seconds", "0.1", "--top", "1")
    assert code == 0 and "net: predict B=8 on cpu, f32" in out and "rows/s" in out and "more: " in out


def test_an_artifact_and_what_it_was_built_for(dslc: Any, project: Path) -> None:
    assert dslc("build", "net.nn", "--size", "predict:B=1,16")[0] == 0
    code, out, _ = dslc("bench", "build/net", "--entry", "predict", "--size", "B=1", "--seconds", "0.1", "--json")
    assert code == 0 and json.loads(out)["sizes"] == {"B": 1}
    code, out, _ = dslc("bench", "build/net", "--entry", "predict", "--seconds", "0.1", "--json")
    assert code == 0 and json.loads(out)["sizes"] == {"B": 16}
    code, _, err = dslc("bench", "build/net", "--size", "B=5")
    assert code == 5 and "error[R312]" in err and "train_step@B=8" in err
    code, _, err = dslc("bench", "build/net", "--target", "sm_90")
    assert code == 2 and "give FILE.nn" in err
    code, _, err = dslc("bench", "net.nn", "--device", "gpu:0", "--target", "cpu")
    assert code == 4 and "error[R202]" in err


def test_the_gate(dslc: Any, project: Path) -> None:
    call = ("bench", "net.nn", "--device", "cpu", "--seconds", "0.1", "--tolerance", "10")
    base = json.loads(dslc(*call, "--json")[1])
    (project / "base.json").write_text(json.dumps(base))
    code, out, _ = dslc(*call, "--against", "base.json")
    assert code == 0 and "not slower: " in out and "earlier" in out and "net.nn:4" in out
    faster = {**base, "step": {**base["step"], "median": base["step"]["median"] / 1000}}
    (project / "base.json").write_text(json.dumps(faster))
    code, out, _ = dslc(*call, "--against", "base.json", "--json")
    assert code == 1 and json.loads(out)["against"]["slower"] and json.loads(out)["against"]["ratio"] > 11
    for text, said in (
        ("{", "not JSON"),
        ("[]", "not a measurement"),
        ('{"step": {"median": -1}, "lines": []}', "not a measurement"),
        (json.dumps({**base, "lines": [{"line": 3}]}), "not a measurement"),
        ("[" * 100_000, "not JSON"),
        (json.dumps({**base, "sizes": {"B": 9}}), "it measured sizes"),
        (json.dumps({**base, "device": "gpu:0"}), "it measured device gpu:0"),
    ):
        (project / "base.json").write_text(text)
        code, _, err = dslc(*call, "--against", "base.json")
        assert code == 3 and "error[R101]" in err and said in err, text[:40]
    assert dslc(*call, "--against", "none.json")[0] == 3


def test_on_a_gpu(
    dslc: Any, tmp_path: Path, machine: Callable[..., FakeDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "_BLOCK", 1 << 16)
    monkeypatch.setattr(timing, "_LEAST", 1 << 10)
    path, kernels = write_gpu_line(tmp_path, targets=("sm_90",), bulks=True)
    fake = machine(**kernels.driver())
    code, out, err = dslc("bench", path, "--device", "gpu", "--seconds", "0.1", "--json")
    assert code == 0, out + err
    data = json.loads(out)
    assert data["device"] == "gpu:0" and data["counted"]["graph_launches"] == 1
    assert data["counted"]["synchronisations"] == data["counted"]["launches"] == data["counted"]["compilations"] == 0
    assert data["roof"]["copy"] == pytest.approx(2 * (1 << 16) / 1e-3)  # every time of the fake is 1 ms
    assert data["roof"]["matrix16"] == 4096 * 132 * 1.98e9
    assert {r["seconds"] for r in data["nodes"]} == {1e-3} and len(data["nodes"]) == data["instructions"]["kernels"]
    assert {r["line"] for r in data["lines"]} == {"linear.nn:1", "linear.nn:2"}
    assert devices.device(0).info().memory.used == 0
    devices.device(0).close()
    assert fake.leaks() == {}


def test_memory_that_is_short_makes_smaller_copies(
    machine: Callable[..., FakeDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "_BLOCK", 1 << 20)
    monkeypatch.setattr(timing, "_LEAST", 1 << 12)
    fake = machine(total=1 << 20)
    fake.used_elsewhere = 1 << 10
    device = devices.device(0)
    with device:
        noted: Noted = []
        stream = device.driver.stream(noted)
    with timing.stopwatch(device, stream) as watch:
        assert watch._size == 1 << 18 and watch.times([]) == []
    with device:
        device.driver.let_go(noted)
    assert device.info().memory.used == 0 and not fake.device_memory
    device.close()
    assert fake.leaks() == {}


def test_peaks_of_other_gpus(machine: Callable[..., FakeDriver]) -> None:
    for capability, expected in (((7, 5), {}), ((8, 7), 512), ((9, 0), 4096), ((12, 0), 8192)):
        machine(capability=capability)
        found = timing.peaks(Device(devices.driver(), 0, []))
        assert found == expected if not expected else found["matrix16"] == expected * 132 * 1.98e9


def test_random_inputs_are_in_range(tmp_path: Path) -> None:
    from dslc.runtime.session.load import load
    from dslc.runtime.session.measure import program_of, random_inputs

    path, _ = write_gpu_line(tmp_path, targets=("cpu",))
    with load(path, weights="init", meanings=line_model.MEANINGS) as session:
        program = program_of(session, "train_step", {})
        inputs = random_inputs(session, program)
        assert inputs["x"].shape == (line_model.BATCH, line_model.FEATURES) and set(inputs) == {"x", "target"}
        assert (random_inputs(session, program)["x"] == inputs["x"]).all()
        session.train_step(**inputs)


def test_shares_above_100_percent_are_explained() -> None:
    """Kernels that overlap take more time than the step; one whose bytes are in a cache is faster than the roof."""

    def shown(seconds: float, roof: float) -> str:
        node = bench.Row("relu a", "net.nn:3", seconds, 10, 10, roof)
        step = {name: 1e-3 for name in ("median", "p10", "p90", "min")} | {"steps": 9, "rows": None}
        held = {"state": 1, "io": 1, "work": 1}
        data = {"entry": "predict", "sizes": {}, "nodes_seconds": seconds, "step": step, "bytes": held, "name": "n",
                "counted": {}, "roof": {"copy": 1e9}, "device": "cpu", "precision": "f32",
                "instructions": {}}  # fmt: skip
        return bench_command._text(data, [node], 5)

    slow, fast = shown(2e-3, 1e-3), shown(5e-4, 1e-3)
    assert "2.00 times the step" in slow and "50%" in slow and "cache" not in slow
    assert "50% of the step; the rest are gaps" in fast and "200%" in fast and "above 100% if" in fast
