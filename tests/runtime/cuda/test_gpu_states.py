"""States that a model carries, on the fake driver: the CPU's bits, and all memory is counted and let go of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.gpu_model import Kernels, moved_to_gpu
from states.recurrent import CARRIED, TRAIN, built, data

from dslc.compiler.ops import registry
from dslc.runtime.artifact.file import Artifact, read_artifact
from dslc.runtime.cuda import device as devices
from dslc.runtime.session.load import load
from dslc.runtime.session.open import session_needs
from dslc.runtime.session.session import Session


def both(folder: Path, machine: Callable[..., FakeDriver], seed: int, **options: Any) -> tuple[Session, Session]:
    path = built(folder, CARRIED + TRAIN)
    kernels = Kernels(registry.meanings())
    path.write_bytes(moved_to_gpu(Artifact.of_bytes(path.read_bytes()), kernels))
    machine(**kernels.driver(seed=seed))
    given = {"weights": "init", "seed": 5, "meanings": registry.meanings}
    return load(path, device="gpu", **given, **options), load(path, device="cpu", **given)


def equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(one[n].tobytes() == other[n].tobytes() for n in one)


@pytest.mark.parametrize(("steps", "contexts", "seed"), [(1, 1, 0), (3, 2, 1)])
def test_the_bits_of_the_cpu(
    tmp_path: Path, machine: Callable[..., FakeDriver], steps: int, contexts: int, seed: int
) -> None:
    gpu, cpu = both(tmp_path, machine, seed, steps_per_launch=steps, contexts=contexts)
    given = [data(4, n) for n in range(5)]
    assert gpu.train_steps(given) == cpu.train_steps(given)
    assert equal(gpu.state_tensors(), cpu.state_tensors())
    for session in (gpu, cpu):
        session.reset_state()
    assert gpu.train_steps(given) == cpu.train_steps(given)
    rows = {n: np.concatenate([b[n] for b in given]) for n in given[0]}
    assert gpu.evaluate(**rows) == cpu.evaluate(**rows)
    streams = [(gpu.stream(), cpu.stream()) for _ in range(3)]
    for n in range(4):
        for k, (one, other) in enumerate(streams):
            x = data(2, 7 * k + n, time=(5, 1)[n % 2])["x"]
            assert np.array_equal(one.predict(x=x).output, other.predict(x=x).output)
        assert np.array_equal(gpu.predict(x=x).output, cpu.predict(x=x).output)
    assert all(equal(one.state, other.state) for one, other in streams)
    assert equal(gpu.state_tensors(), cpu.state_tensors())
    gpu.close()
    assert devices.memory_info().used == 0


@pytest.mark.parametrize("contexts", [1, 3])
def test_a_session_takes_the_bytes_that_are_foreseen(
    tmp_path: Path, machine: Callable[..., FakeDriver], contexts: int
) -> None:
    gpu, _ = both(tmp_path, machine, 0, contexts=contexts)
    needs = session_needs(read_artifact(tmp_path / "net.dslc"), contexts)
    assert devices.memory_info().used == needs["sm_90"]["load"]
    gpu.close()
