"""Models that the compiler made, on the fake driver: each op a kernel with its numpy meaning; the CPU's bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.gpu_model import Kernels, moved_to_gpu

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.build import LossScale, Precision
from dslc.compiler.ir.types import DType
from dslc.compiler.ops import registry
from dslc.compiler.options import Options
from dslc.runtime.artifact.file import Artifact
from dslc.runtime.cuda import device as devices
from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session

MODEL = """nn 1
dim B in 1..64 = 4
model Small(image: [B, 3, 8, 8]) -> [B, 5] {{
  return image |> conv(6, 3, pad=1) as a |> batchnorm as bn |> relu |> maxpool(2)
    |> flatten |> linear(16) as b |> gelu |> dropout(0.25) |> linear(5) as c
}}
train Small(label: i32[B]) {{
  loss      = cross_entropy(output, label)
  metrics   {{ accuracy = accuracy(output, label) }}
  optimizer = adamw(lr=0.01)
  {more}
}}
"""


def batch(step: int, rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    return {"image": rng.standard_normal((rows, 3, 8, 8)).astype(np.float32),
            "label": rng.integers(0, 5, rows).astype(np.int32)}  # fmt: skip


def both(
    folder: Path, machine: Callable[..., FakeDriver], more: str = "", seed: int = 0, model: str = MODEL
) -> tuple[Session, Session]:
    (folder / "small.nn").write_text(model.format(more=more))
    checked = check_file(folder / "small.nn")
    built = pipeline.build(checked, Options(provider="reference"))
    kernels = Kernels(registry.meanings())
    (folder / "small.dslc").write_bytes(moved_to_gpu(Artifact.of_bytes(built.artifact), kernels))
    machine(**kernels.driver(seed=seed))
    given = {"weights": "init", "seed": 5, "meanings": registry.meanings}
    return load(folder / "small.dslc", device="gpu", **given), load(folder / "small.dslc", device="cpu", **given)


def equal(gpu: Session, cpu: Session, call: Callable[[Session], Any]) -> bool:
    one, other = call(gpu), call(cpu)
    if isinstance(one, np.ndarray):
        return one.tobytes() == other.tobytes() and one.shape == other.shape
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(one[n].tobytes() == other[n].tobytes() for n in one)
    return bool(one == other)


@pytest.mark.parametrize(("more", "rows"), [("", 4), ("accumulate = 3", 12), ("ema = 0.9", 4)])
def test_a_compiled_model(tmp_path: Path, machine: Callable[..., FakeDriver], more: str, rows: int) -> None:
    gpu, cpu = both(tmp_path, machine, more)
    assert equal(gpu, cpu, lambda s: s.state_tensors())
    launches = gpu.counters["graph_launches"]
    late = [gpu.train_step(**batch(i, rows)) for i in range(5)]  # read when others are under way
    assert late == [cpu.train_step(**batch(i, rows)) for i in range(5)]
    assert gpu.counters["graph_launches"] - launches == 5 * rows // 4
    assert gpu.counters["synchronisations"] == 0
    assert equal(gpu, cpu, lambda s: s.state_tensors())
    assert equal(gpu, cpu, lambda s: s.predict(image=batch(9, 7)["image"]))
    assert equal(gpu, cpu, lambda s: s.evaluate(**batch(9, 10)))
    assert equal(gpu, cpu, lambda s: s.find_nonfinite(**batch(10, rows)))
    assert equal(gpu, cpu, lambda s: s.state_tensors())
    gpu.close()
    assert devices.memory_info().used == 0


@pytest.mark.parametrize(("more", "rows", "runs"), [("accumulate = 3", 12, 6), ("}\nmesh {{ shards = 2", 4, 6)])
def test_updates_in_turn(tmp_path: Path, machine: Callable[..., FakeDriver], more: str, rows: int, runs: int) -> None:
    """Two updates of a divided batch; the second one's loss reads what the first one has changed."""
    model = MODEL.replace("  optimizer = adamw(lr=0.01)\n", "").replace(
        "  loss      = cross_entropy(output, label)\n",
        """
  step low {{ params = ["a", "bn"]; loss = mean(output^2); optimizer = adamw(lr=0.01) }}
  step high {{ params = ["b", "c"]; loss = cross_entropy(output, label); optimizer = sgd(lr=0.1) }}
""",
    )
    gpu, cpu = both(tmp_path, machine, more.replace("{{", "{"), model=model)
    launches = gpu.counters["graph_launches"]
    late = [gpu.train_step(**batch(i, rows)) for i in range(4)]  # read when others are under way
    assert late == [cpu.train_step(**batch(i, rows)) for i in range(4)]
    assert gpu.counters["graph_launches"] - launches == 4 * runs
    assert gpu.counters["synchronisations"] == 0
    assert equal(gpu, cpu, lambda s: s.state_tensors())
    assert equal(gpu, cpu, lambda s: s.find_nonfinite(**batch(10, rows)))
    assert equal(gpu, cpu, lambda s: s.state_tensors())
    gpu.close()


def test_shards_of_a_batch(tmp_path: Path, machine: Callable[..., FakeDriver]) -> None:
    """One after the other; their sums pass through the host."""
    gpu, cpu = both(tmp_path, machine, "}\nmesh { shards = 2")
    launches = gpu.counters["graph_launches"]
    assert [gpu.train_step(**batch(i, 4)) for i in range(3)] == [cpu.train_step(**batch(i, 4)) for i in range(3)]
    assert gpu.counters["graph_launches"] - launches == 3 * 3
    assert equal(gpu, cpu, lambda s: s.state_tensors())
    assert equal(gpu, cpu, lambda s: s.find_nonfinite(**batch(10, 4)))
    assert equal(gpu, cpu, lambda s: s.state_tensors())
    gpu.close()


@pytest.mark.parametrize(("more", "rows"), [("", 4), ("accumulate = 3; ema = 0.9", 12)])
def test_a_loss_scale_comes_back_with_each_step(
    tmp_path: Path, machine: Callable[..., FakeDriver], monkeypatch: pytest.MonkeyPatch, more: str, rows: int
) -> None:
    """Though results are late; a step in the middle overflows."""
    scale = LossScale(interval=3)
    monkeypatch.setattr(pipeline, "precision_of", lambda *_: Precision(DType.F32, DType.F32, scale))
    gpu, cpu = both(tmp_path, machine, more)
    given = [batch(i, rows) for i in range(6)]
    given[3]["image"][0] = np.inf
    late = [gpu.train_step(**b) for b in given]
    expected = [cpu.train_step(**b) for b in given]
    assert [(r.loss_scale, r.skipped, r.skipped_steps) for r in late] == [
        (65536, False, 0), (65536, False, 0), (65536, False, 0), (131072, True, 1), (65536, False, 1), (65536, False, 1)
    ]  # fmt: skip
    assert late[:3] + late[4:] == expected[:3] + expected[4:] and np.isnan(late[3].loss)
    assert gpu.counters["synchronisations"] == 0
    together = [(r.loss_scale, r.skipped, r.skipped_steps) for r in gpu.train_steps(given)]
    assert together == [(r.loss_scale, r.skipped, r.skipped_steps) for r in (cpu.train_step(**b) for b in given)]
    assert equal(gpu, cpu, lambda s: s.state_tensors())
    gpu.close()
