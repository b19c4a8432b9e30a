"""The models of benchmarks/zoo check with the train section of their comparison, for the batch that it draws."""

from __future__ import annotations

import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import compare
import numpy as np
import pytest
from chart import COLUMNS, svg, table, write
from compare import ROOM, compared, waves
from entries import BY_NAME, ENTRIES, TOKENS, Entry, chosen
from fake_gpu.gpu_pair import Pair, batch
from ours import Ours, source
from peer import Failed, Peer
from predict_ours import Predicting
from steps import BURSTS, norm_errors, timed
from thinning import taken

import dslc
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Kind
from dslc.runtime.cuda.arrays.arrays import DeviceArray
from dslc.runtime.session.measure import program_of


@pytest.mark.parametrize(
    ("entry", "device"), taken(product(ENTRIES, ("cpu", "gpu")), 3), ids=lambda value: getattr(value, "name", value)
)
def test_a_model_takes_its_batch(entry: Entry, device: str, tmp_path: Path) -> None:
    entry = entry.on(device)
    path = tmp_path / "net.nn"
    path.write_text(source(entry), encoding="utf-8")
    checked = check_file(path, entry.file.partition(":")[2], entry.arguments())
    sizes = {dim.name: entry.sizes.get(dim.name, dim.default) for dim in checked.dims}
    assert entry.dims().keys() <= sizes.keys()
    types = {node.name: node.value.type for node in checked.graph.inputs}
    inputs, labels = entry.drawn()
    for name, x in (inputs | labels).items():
        wanted = types[name]
        assert x.shape == tuple(sizes.get(str(n), n) for n in wanted.shape), name
        assert x.dtype == {"u8": np.uint8, "i32": np.int32}.get(str(wanted.dtype), np.float32), name
        assert x.size == 1 or np.ptp(x.astype(np.float64)) > 0, name


@pytest.mark.parametrize("entry", taken(ENTRIES, 3), ids=lambda entry: entry.name)
def test_a_prediction_takes_its_rows(entry: Entry, tmp_path: Path) -> None:
    """The model has no train section, and the inputs that are drawn are all that it reads."""
    found = entry.on("gpu").predicting(3)
    assert "B" not in found.sizes or found.dims()["B"] == 3
    path = tmp_path / "net.nn"
    path.write_text(source(found, trains=False), encoding="utf-8")
    checked = check_file(path, found.file.partition(":")[2], found.arguments())
    sizes = {dim.name: found.sizes.get(dim.name, dim.default) for dim in checked.dims}
    wanted = {n.name: n.value.type.shape for n in checked.graph.inputs if n.kind is Kind.DATA}
    shapes = {name: tuple(sizes.get(str(n), n) for n in shape) for name, shape in wanted.items()}
    assert checked.train is None and {name: x.shape for name, x in found.drawn()[0].items()} == shapes


def test_a_step_has_the_sizes_and_the_rows_that_are_asked_for() -> None:
    """On a CPU those of a GPU too; experts have room for as many tokens."""

    def sizes(name: str, **given: object) -> Mapping[str, int]:
        asked = {"name": name, "device": "cpu", "sizes": None, "entry": "train_step", "batch": None}
        return chosen(Namespace(**(asked | given))).sizes

    assert sizes("ResNet-50")["S"] == 96
    assert sizes("ResNet-50", sizes="gpu", batch=16) == {"B": 16, "S": 224}
    assert sizes("MoE top-2", sizes="gpu", batch=2) == {"B": 2, "T": 512, "room": 320}
    assert sizes("GCN", sizes="gpu", batch=2) == BY_NAME["GCN"].on("gpu").sizes


def test_a_text_of_a_prediction_is_short_and_its_experts_have_as_much_room() -> None:
    moe = BY_NAME["MoE top-2"].on("gpu")
    assert moe.predicting(32).sizes == {"B": 32, "T": TOKENS, "room": moe.sizes["room"]}
    assert moe.predicting(1).sizes["room"] == moe.sizes["room"] // 32
    assert BY_NAME["WaveNet"].on("gpu").predicting(1).sizes["T"] == 8192


def test_a_map_of_a_part_that_predicts_is_not_that_of_training() -> None:
    """The step of training needs the weights that the part lacks."""
    for name in ("DCGAN", "StyleGAN2"):
        entry = BY_NAME[name]
        assert entry.map is None and entry.predicting(1).map == {"judge.*": None}


def test_rows_of_words_are_padded() -> None:
    inputs, labels = BY_NAME["BERT-base"].drawn()
    assert {int(n) for n in inputs["mask"].sum(1)} == {64, 48}
    np.testing.assert_array_equal(labels["target"] == -100, inputs["mask"] == 0)


def test_an_error_is_seen_in_its_tensor() -> None:
    wanted = {"a": np.ones(4), "b": np.full(4, 1e-9)}
    assert norm_errors({"a": np.array([1, 1, 1, 1.2]), "b": np.full(4, 2e-9)}, wanted) == pytest.approx(
        {"a": 0.1 / 1.001, "b": 1e-6}, rel=1e-3
    )


def test_steps_are_timed_one_by_one_or_together() -> None:
    ran: list[int] = []
    found = timed(ran.append, 0.0, together=False)
    assert ran == [1, 1, 1] and len(found) == 3 and all(ms >= 0 and cpu >= 0 for ms, cpu in found)
    ran.clear()
    assert len(timed(ran.append, 0.001, together=True)) <= BURSTS and ran[0] == 3 and len(set(ran[1:])) == 1


def test_a_process_that_ends_is_told_by_its_exception(tmp_path: Path) -> None:
    """Also if the text of the exception goes on for some lines."""
    for text in ("raise AssertionError('stride 1==16 at dim=1\\nSee https://a.page')", "import sys; sys.exit('no')"):
        peer = Peer([sys.executable, "-c", text], tmp_path / "log", {})
        said = "AssertionError: stride 1==16 at dim=1 See https" if "raise" in text else "code 1: no"
        with pytest.raises(Failed, match=said):
            peer.answer()
        peer.close()


def test_waves_fit_into_a_gpu() -> None:
    found = list(waves(ENTRIES, 5))
    assert [entry for wave in found for entry in wave] == list(ENTRIES)
    assert all(len(wave) <= 5 and sum(2 * entry.gib for entry in wave) <= ROOM for wave in found)
    assert [len(wave) for wave in waves(ENTRIES, 1)] == [1] * len(ENTRIES)


def test_a_model_that_is_not_ready_does_not_take_the_others_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    class Late(compare.Pair):
        def start(self) -> None:
            if self.entry is ENTRIES[0]:
                released.wait(60)
                raise Failed("a process ended")

        def measure(self) -> dict[str, object]:
            return {"model": self.entry.name}

        def close(self) -> None:
            if self.entry is ENTRIES[0]:
                released.set()

    monkeypatch.setattr(compare, "Pair", Late)
    monkeypatch.setattr(compare, "LAST", 0.2)
    asked = Namespace(together=3, room=1000, limit=1.2, device="cpu", dtype="f32", only_build=False)
    rows = list(compare.compare(ENTRIES[:3], asked, tmp_path))
    assert [row["model"] for row in rows] == [entry.name for entry in ENTRIES[:3]]
    assert [row.get("error") for row in rows] == ["it was not ready in time", None, None]


def test_each_peer_has_a_ratio_to_ours() -> None:
    found = compared(
        {"ours": [(2.0, 1.0), (4.0, 1.0), (3.0, 1.0)], "torch": [(6.0, 3.0)], "onnx": [(1.5, 3.0)]}, ("ms", "cpu ms")
    )
    assert (found["ours ms"], found["ours least ms"], found["torch cpu ms"]) == (3.0, 2.0, 3.0)
    assert (found["ratio"], found["cpu ratio"], found["onnx ratio"]) == (2.0, 3.0, 0.5)


def row(model: str, ratio: float) -> dict[str, object]:
    shown = {"sizes": {"B": 8}, "device": "gpu", "dtype": "bf16", "compile": True, "threads": 2}
    return shown | {"model": model, "output": 1e-7, "ours ms": 10.0, "torch ms": 10 * ratio, "ratio": ratio}


def test_the_table_and_the_chart_show_each_model(tmp_path: Path) -> None:
    rows = [row("<a>", 0.5), row("b", 2.0)]
    lines = table(rows).splitlines()
    assert lines[0] == "| model | sizes | output | ours ms | torch ms | ratio |"
    assert lines[2] == "| <a> | B 8 | 1.0e-07 | 10.0 | 5.0 | 0.50 |"
    assert lines[-1] == "Geometric mean of 2 models: ratio 1.00."
    assert set(lines[0].strip("| ").split(" | ")) <= set(COLUMNS)
    root = ElementTree.fromstring(svg(rows))
    texts = [x.text for x in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == [texts[0], "b", "2.00x  10 / 20 ms", "<a>", "0.50x  10 / 5 ms"]
    write(tmp_path, rows)
    assert {path.name for path in tmp_path.iterdir()} == {"table.md", "chart.svg", "chart.html"}
    assert "&lt;a&gt;" in (tmp_path / "chart.html").read_text(encoding="utf-8")


def test_a_session_on_a_gpu_reads_inputs_that_lie_there(pair: Callable[..., Pair], tmp_path: Path) -> None:
    mine_and_cpu, given = pair(), batch(0)
    mine = Ours(ENTRIES[0], tmp_path, "gpu", only_time=True)
    mine.session, mine.inputs, mine.labels = mine_and_cpu.gpu, {"x": given["x"]}, {"target": given["target"]}
    mine.given = mine.in_place()
    for name, value in given.items():
        assert isinstance(mine.given[name], DeviceArray) and np.array_equal(mine.given[name].numpy(), value)
    assert len(mine.time("0.01")) <= BURSTS
    steps = mine.session.step
    assert steps >= 3 and mine.memory()["MiB"] >= 0
    losses = [float(mine_and_cpu.cpu.train_step(**given, lr=1e-6).loss) for _ in range(steps + 1)]
    assert mine.run(1) == pytest.approx(losses[-1], rel=1e-6) != losses[0]
    mine.given.clear()


def test_predictions_are_timed_with_and_without_copies(pair: Callable[..., Pair], tmp_path: Path) -> None:
    gpu = pair().gpu
    mine = Predicting(ENTRIES[0], tmp_path, "gpu", only_time=True)
    mine.session, mine.inputs = gpu, {"x": batch(0)["x"]}
    mine.program = program_of(mine.session, "predict", {})
    copied = gpu.counters["bytes_in"]
    mine.call()
    before = gpu.counters
    found = mine.commands()["kernels"]("0.01")
    assert isinstance(found, list) and len(found) == BURSTS and all(ms > 0 for ms, _ in found)
    after = gpu.counters
    sent = BURSTS + 1  # once a burst, and once to see how long a run takes
    assert after["bytes_in"] - before["bytes_in"] == sent * (before["bytes_in"] - copied)
    assert after["bytes_out"] == before["bytes_out"] and after["graph_launches"] - before["graph_launches"] > sent
    mine.time("0.01")
    assert gpu.counters["bytes_out"] > after["bytes_out"]


def test_memory_is_what_the_driver_has_less_after_opening(
    pair: Callable[..., Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What other processes take before or after does not count."""
    made, free = pair(), iter((90, 70, 64, 10))
    mine = Ours(ENTRIES[0], tmp_path, "gpu", only_time=True)
    given = batch(0)
    mine.inputs, mine.labels = {"x": given["x"]}, {"target": given["target"]}
    monkeypatch.setattr(Ours, "free", lambda self: next(free) << 20)
    mine.free()
    monkeypatch.setattr(dslc, "load", lambda *args, **options: made.gpu)
    assert mine.open()["step s"] >= 0
    assert mine.memory()["driver MiB"] == 6
    mine.given.clear()
