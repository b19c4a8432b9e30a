"""Sessions on the GPUs of a fake driver, which train the nets of ``nets.py``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.fake_nccl import FakeNccl
from fake_gpu.gpu_model import Kernels, moved_to_gpu

from dslc.compiler.ops import registry
from dslc.runtime.artifact.file import read_artifact
from dslc.runtime.cuda.libraries import nccl
from dslc.runtime.ranks.group import Group
from dslc.runtime.session.load import load
from ranks.nets import batch, rows_of

STEPS = 4
Machine = Callable[..., FakeDriver]


def on_gpus(
    path: Path,
    machine: Machine,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
    total: int = 1 << 34,
    peers: bool = False,
) -> FakeNccl:
    """Adds code for GPUs to an artifact, and makes a machine with so many of them, of ``total`` bytes each. ``peers``:
    whether a process may write into the memory of another one."""
    kernels = Kernels(registry.meanings())
    path.write_bytes(moved_to_gpu(read_artifact(path), kernels))
    fake = FakeNccl(machine(**kernels.driver(devices=count, total=total)))
    fake.fake.peers = peers
    monkeypatch.setattr(nccl, "load_nccl", lambda: fake)
    return fake


def opened(path: Path, device: str, **given: Any) -> Any:
    return load(path, device=device, weights="init", seed=3, meanings=registry.meanings, **given)


def trained(session: Any, source: str, group: Group | None = None) -> tuple[list[Any], dict[str, Any]]:
    rank, size = (0, 1) if group is None else (group.rank, group.size)
    rows = rows_of(source) // size
    own = slice(rank * rows, (rank + 1) * rows)
    results = [session.train_step(**{n: a[own] for n, a in batch(source, s).items()}) for s in range(STEPS)]
    state = session.state_tensors()
    return results, {name: array.tobytes() for name, array in state.items()}
