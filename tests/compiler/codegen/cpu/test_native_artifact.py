"""A model built with the provider own: it trains as the reference does, with the same bits for any number of threads,
in a process without compiler and numba, from objects that call nothing."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dslc
from dslc.base.errors import ArtifactError, BuildError, EnvironmentFault, InputError
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen import lowering_cache
from dslc.compiler.codegen.cpu import lower
from dslc.compiler.codegen.cpu.levels import LEVELS
from dslc.compiler.codegen.cpu.object.compile import object_of
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build
from dslc.runtime.artifact.file import read_artifact
from dslc.runtime.cpu import levels, objects
from dslc.runtime.cpu.levels import machine_level
from dslc.runtime.cpu.native import CommandList, Job, Team, thread_count
from dslc.runtime.session.load import load as load_alone

MODEL = """\
nn 1
dim B in 1..70 = 70

model Net(image: [B, 1, 12, 12]) -> [B, 4] {
  h = image |> conv(5, 3, pad=1) |> relu |> maxpool(2) |> dropout(0.2)
  return h |> flatten |> linear(33) |> gelu |> linear(4)
}

train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  metrics   { accuracy = accuracy(output, label) }
  optimizer = adam(lr=0.01)
}
"""
STEPS = 4
RUN = """\
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numba", "lark", "click") or name.startswith(("dslc.compiler", "dslc.dsl")):
            raise ImportError("refused: " + name)
sys.meta_path.insert(0, Refuse())
import hashlib, json
import numpy as np
from dslc.runtime.session.load import load
session = load(sys.argv[1], weights="init", seed=3)
rng = np.random.default_rng(0)
image = rng.standard_normal((70, 1, 12, 12)).astype(np.float32)
label = rng.integers(0, 4, 70).astype(np.int32)
losses = [float(session.train_step(image=image, label=label).loss) for _ in range(int(sys.argv[2]))]
tensors = session.state_tensors()
digest = hashlib.sha256(b"".join(tensors[n].tobytes() for n in sorted(tensors))).hexdigest()
print(json.dumps([losses, digest, session.predict(image=image[:3]).tobytes().hex()]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("native")
    (path / "net.nn").write_text(MODEL)
    return path


def built(folder: Path, **options: Any) -> Path:
    name = "_".join(f"{k}_{v}" for k, v in options.items())
    path = folder / f"{name}.dslc"
    if not path.exists():
        path.write_bytes(build(check_file(str(folder / "net.nn")), Options(**options)).artifact)
    return path


def run(path: Path, threads: int, steps: int = STEPS) -> Any:
    environment = {**os.environ, "DSLC_THREADS": str(threads)}
    command = [sys.executable, "-c", RUN, str(path), str(steps)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_training_is_the_references_with_one_set_of_bits(folder: Path) -> None:
    own = built(folder, provider="own")
    losses, digest, predicted = run(own, 1)
    for threads in (2, 5, 8):
        assert run(own, threads) == [losses, digest, predicted]
    with dslc.load(built(folder, provider="reference"), weights="init", seed=3) as session:
        rng = np.random.default_rng(0)
        image = rng.standard_normal((70, 1, 12, 12)).astype(np.float32)
        label = rng.integers(0, 4, 70).astype(np.int32)
        wanted = [float(session.train_step(image=image, label=label).loss) for _ in range(STEPS)]
    np.testing.assert_allclose(losses, wanted, rtol=2e-5)
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_fused_and_unfused_training_have_the_same_bits(folder: Path) -> None:
    assert run(built(folder, provider="own"), 2) == run(built(folder, provider="own", fuse=False), 2)


@pytest.mark.slow
def test_objects_export_the_kernels_and_call_nothing(folder: Path) -> None:
    artifact = read_artifact(built(folder, provider="own"))
    assert list(artifact.header["required_features"]) == ["native"]
    assert artifact.blobs("object") == ("code.x86_64_v3", "code.x86_64_v4", "code.armv8_2")
    for name in artifact.blobs("object"):
        defined, wanted = symbols(bytes(artifact.blob(name)))
        assert objects.DRIVER in defined
        assert all(s.startswith("k_") for s in defined - {objects.DRIVER, "memcpy", "memset"})
        assert not wanted, wanted


def symbols(data: bytes) -> tuple[set[str], set[str]]:
    """Global symbols of an ELF64 object: those it defines, and those it needs."""
    number = int.from_bytes
    offset, size, count = number(data[40:48], "little"), number(data[58:60], "little"), number(data[60:62], "little")
    sections = [data[offset + i * size : offset + (i + 1) * size] for i in range(count)]
    defined: set[str] = set()
    wanted: set[str] = set()
    for section in sections:
        if number(section[4:8], "little") != 2:  # SHT_SYMTAB
            continue
        start, length = number(section[24:32], "little"), number(section[32:40], "little")
        names = number(sections[number(section[40:44], "little")][24:32], "little")
        for at in range(start, start + length, 24):
            place, info, home = (
                number(data[at : at + 4], "little"),
                data[at + 4],
                number(data[at + 6 : at + 8], "little"),
            )
            name = data[names + place : data.index(b"\0", names + place)].decode()
            if name and info >> 4:  # not local
                (defined if home else wanted).add(name)
    return defined, wanted


def test_a_kernel_that_is_missing_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(lower.LOWERINGS, "maxpool")  # type: ignore[arg-type]
    # this process has lowered the like before
    monkeypatch.setattr(lowering_cache, "_first", lowering_cache._first.__wrapped__)
    with pytest.raises(BuildError, match=r"E0603[\s\S]*maxpool") as caught:
        build(check_file(str(folder / "net.nn")), Options(provider="own"))
    assert "--providers auto" in str(caught.value)


def test_a_machine_without_any_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "cpu_features", frozenset)
    with pytest.raises(EnvironmentFault, match=r"R202[\s\S]*x86_64_v3"):
        machine_level(["x86_64_v3", "x86_64_v4"])


def test_a_damaged_object_is_refused(folder: Path) -> None:
    with pytest.raises(ArtifactError, match="R301"):
        objects.Objects(b"\x7fELF no object", ["k_1"])


def test_a_session_alone_needs_no_meanings(folder: Path) -> None:
    with load_alone(built(folder, provider="own"), weights="init", meanings=None) as session:
        assert session.predict(image=np.zeros((2, 1, 12, 12), np.float32)).shape == (2, 4)


def test_the_same_bytes_in_two_processes(folder: Path) -> None:
    code = (
        "import sys, hashlib\n"
        "from dslc.compiler.codegen.cpu.contraction import lower\n"
        "from dslc.compiler.codegen.cpu.contraction.matmul import Matmul\n"
        "from dslc.compiler.codegen.cpu.levels import LEVELS\n"
        "from dslc.compiler.codegen.cpu.object.compile import object_of\n"
        "from dslc.compiler.codegen.launch import Launch\n"
        "from dslc.compiler.ir.types import DType\n"
        "products = [Matmul(DType.F32, (20, 9), (9, n), False, False) for n in (3, 17, 40)]\n"
        "made = [Launch(step.kernel, (), ()).code for product in products for step in product.steps().steps]\n"
        "specs = {f'k_{i}': kernel for i, kernel in enumerate(made)}\n"
        "print([hashlib.sha256(object_of(specs, level)).hexdigest() for level in LEVELS])\n"
    )
    found = set()
    for seed in ("1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1


def test_concurrent_callers_get_the_bits_of_one(folder: Path) -> None:
    image = np.random.default_rng(5).standard_normal((70, 1, 12, 12)).astype(np.float32)
    with load_alone(built(folder, provider="own"), weights="init", contexts=4) as session:
        wanted = session.predict(image=image).tobytes()
        with ThreadPoolExecutor(4) as callers:
            found = list(callers.map(lambda _: session.predict(image=image).tobytes(), range(200)))
    assert set(found) == {wanted}


Counted = list[tuple[int, int]]


@pytest.fixture(scope="module")
def driver() -> objects.Objects:
    return objects.Objects(object_of({}, machine_level(LEVELS)), [])


def counting(counted: Counted, before: Callable[[int, int], None] = lambda args, first: None) -> Any:
    """A kernel that notes (args, task) for each of its tasks when it is done with a claim."""

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    def kernel(args: int, first: int, last: int) -> None:
        before(args, first)
        counted.extend((args, task) for task in range(first, last))

    return kernel


def table_of(kernel: Any, tasks: Sequence[int], waits: Sequence[bool]) -> np.ndarray:
    address = ctypes.cast(kernel, ctypes.c_void_p).value
    return np.array([[address, n + 1, t, w] for n, (t, w) in enumerate(zip(tasks, waits))], np.int64)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_every_task_runs_once_and_a_command_that_waits_after_those_before(
    driver: objects.Objects, threads: int
) -> None:
    counted: Counted = []
    tasks = [1 + 37 * (n % 3) for n in range(60)] + [40_000, 0, 5, 0]
    waits = [n % 4 != 3 for n in range(len(tasks))]
    waves = list(np.cumsum(waits))
    kernel = counting(counted)
    table = table_of(kernel, tasks, waits)
    team = Team(threads)
    for _ in range(5):
        counted.clear()
        team.run([Job(driver, table)])
        order = [waves[number - 1] for number, _ in counted]
        assert order == sorted(order)
        assert sorted(counted) == [(n + 1, t) for n, count in enumerate(tasks) for t in range(count)]


def test_a_thread_that_is_held_up_holds_up_its_own_task_alone(driver: objects.Objects) -> None:
    """The first to come sleeps in its task: all others, of this command and of a concurrent one, run meanwhile."""
    counted: Counted = []
    seen = []

    def hold(args: int, first: int) -> None:
        if (args, first) == (1, 0):
            end = time.monotonic() + 60
            while len(counted) < 69 and time.monotonic() < end:
                time.sleep(0.001)
            seen.append(len(counted))

    kernel = counting(counted, hold)
    Team(2).run([Job(driver, table_of(kernel, [35, 35], [True, False]))])
    assert seen == [69] and len(counted) == 70


def test_a_run_does_not_need_its_helpers(driver: objects.Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """Helpers that never wake, or wake at the end, change nothing."""
    counted: Counted = []
    kernel = counting(counted)
    table = table_of(kernel, [70, 3], [True, True])
    team = Team(3)
    late = threading.Event()
    helping = team._help
    monkeypatch.setattr(team, "_help", lambda lane, queue: late.wait(30) and helping(lane, queue))
    for turn in range(6):
        counted.clear()
        team.run([Job(driver, table)])
        assert len(counted) == 73
        if turn == 2:
            late.set()
            time.sleep(0.05)


def test_kernels_that_touch_other_bytes_need_not_wait() -> None:
    class Symbols:
        driver = 0

        def address(self, symbol: str) -> int:
            return 1

    x, y, z = (np.zeros(8, np.float32) for _ in range(3))
    commands = CommandList(Symbols())  # type: ignore[arg-type]
    for arguments in (
        [(x, False), (y, True)],
        [(x, False), (z, True)],  # reads what another reads
        [(z[4:], False), (x[:1], True)],  # reads what was written
        [(x[1:], False), (y, True)],  # next to what is written
        [(y[:2], False), (z[:2], True)],
        [(y[2:], True), (z[2:], True)],  # writes concurrently with a reader of other elements
        [(z[:2], True)],  # writes what is written
    ):
        commands.add("k", arguments, 1)
    assert [bool(row[3]) for row in commands._rows] == [False, False, True, False, True, False, True]


@pytest.mark.parametrize("value", ["0", "65", "-1", "two", "", "１"])
def test_a_wrong_number_of_threads_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSLC_THREADS", value)
    with pytest.raises(InputError, match="R105"):
        thread_count()


@pytest.mark.parametrize(("processors", "threads"), [(1, 1), (3, 3), (64, 64), (65, 64), (1000, 64)])
def test_there_are_as_many_threads_as_processors_up_to_64(
    monkeypatch: pytest.MonkeyPatch, processors: int, threads: int
) -> None:
    monkeypatch.delenv("DSLC_THREADS", raising=False)
    monkeypatch.setattr("dslc.runtime.cpu.native.os.sched_getaffinity", lambda _: set(range(processors)))
    assert thread_count() == threads
    monkeypatch.setenv("DSLC_THREADS", "64")
    assert thread_count() == 64


def test_the_kernels_need_no_llvmlite(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = built(folder, provider="own")
    for name in [n for n in sys.modules if n.partition(".")[0] in ("llvmlite", "numba")]:
        monkeypatch.setitem(sys.modules, name, None)
    with load_alone(artifact, device="cpu", weights="init") as session:
        assert session.predict(image=np.zeros((2, 1, 12, 12), np.float32)).shape == (2, 4)
