"""Sessions on a real GPU, against the CPU programs of the same artifacts (``.gpu/build``).

Needs a GPU with its driver, cuda-bindings, numpy, pytest, and llvmlite for the CPU; torch for the test of exchange.
``make gpu-artifacts`` builds the artifacts.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import ROOT
from real_gpu.launcher import why_not

import dslc
from dslc.base.errors import DeviceLostError, OutOfMemory
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.cuda import device as devices
from dslc.runtime.cuda.arrays.arrays import DeviceArray
from dslc.runtime.session import load as loading
from dslc.runtime.session.open import session_needs
from dslc.runtime.session.session import Session

BUILT = ROOT / ".gpu" / "build"
NAMES = [n for n in ("lenet", "mlp") if (BUILT / n / f"{n}.dslc").exists()]
MIB = 1 << 20

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.skipif(not NAMES, reason="no artifacts in .gpu/build: make gpu-artifacts"),
    pytest.mark.timeout(300),
]


def path(name: str) -> Path:
    return BUILT / name / f"{name}.dslc"


def load(name: str, device: str = "gpu", **options: Any) -> Session:
    return loading.load(path(name), device=device, **{"weights": "init", "seed": 3, **options})


def batch(session: Session, step: int, rows: int | None = None) -> dict[str, np.ndarray]:
    """Random inputs of the built size; integers within their range. A part of each input follows the label."""
    [dim] = [d for d in session.interface.dims if d.batch]
    rows = dim.default if rows is None else rows
    rng = np.random.default_rng(step)
    made: dict[str, np.ndarray] = {}
    for tensor in reversed(session.interface.train_inputs):
        shape = [rows if n == dim.name else int(n) for n in tensor.shape]
        if tensor.range is not None:
            made[tensor.name] = rng.integers(*tensor.range, shape).astype(numpy_dtype(tensor.dtype))
            label, high = made[tensor.name][:, None], tensor.range[1]
        else:
            values = rng.standard_normal(shape) * 0.2
            flat = values.reshape(rows, -1)
            flat[:, : max(1, flat.shape[1] // 4)] += 2 * label / high
            made[tensor.name] = values.astype(numpy_dtype(tensor.dtype))
    return made


def images(session: Session, step: int, rows: int) -> dict[str, np.ndarray]:
    given = batch(session, step, rows)
    return {t.name: given[t.name] for t in session.interface.inputs}


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param
    assert devices.memory_info().used == 0  # every session gives all of its memory back


def test_initial_weights_are_those_of_the_cpu(name: str) -> None:
    with load(name) as gpu, load(name, "cpu") as cpu:
        assert gpu.device == "gpu:0" and cpu.device == "cpu"
        for tensor, value in cpu.state_tensors().items():
            spread = float(value.std()) or 1.0
            assert np.abs(gpu.state_tensors()[tensor] - value).max(initial=0) <= 4e-6 * spread, tensor


@pytest.mark.parametrize("rows", [1, 7, 64, 130])
def test_predict(name: str, rows: int) -> None:
    with load(name) as gpu, load(name, "cpu") as cpu:
        cpu.restore(gpu.state_tensors(), 0)
        given = images(gpu, 0, rows)
        got, want = gpu.predict(**given), cpu.predict(**given)
        assert got.dtype == want.dtype and got.shape == want.shape
        assert np.abs(got - want).max() <= 1e-4 * (1 + np.abs(want).max())
        assert np.array_equal(got, gpu.predict(**given))


def test_a_hundred_steps_follow_the_cpu(name: str) -> None:
    with load(name) as gpu, load(name, "cpu") as cpu:
        cpu.restore(gpu.state_tensors(), 0)
        lr = gpu.interface.train.lr / 4  # where weights that differ by 1e-6 stay together on the CPU, to 1e-6
        late = [gpu.train_step(**batch(gpu, s), lr=lr) for s in range(100)]
        now = [cpu.train_step(**batch(cpu, s), lr=lr) for s in range(100)]
        losses = np.array([[a.loss, b.loss] for a, b in zip(late, now)])
        assert np.isfinite(losses).all() and losses[-10:].mean() < losses[:10].mean()
        assert np.abs(losses[:, 0] - losses[:, 1]).max() <= 1e-3 * (1 + losses.max())
        one, other = (s.evaluate(**batch(gpu, 500, 77)) for s in (gpu, cpu))
        assert one.rows == other.rows and one.loss == pytest.approx(other.loss, rel=2e-3)


def test_bulks_change_nothing_but_the_launches(name: str) -> None:
    states, losses = [], []
    for bulk in (None, 0, 1, 15):
        with load(name, bulk=bulk) as gpu:
            losses.append([r.loss for r in [gpu.train_step(**batch(gpu, s)) for s in range(100)]])
            states.append(gpu.state_tensors())
            counted = gpu.counters
            print(name, bulk, dict(counted))
            assert counted["compilations"] == 0
            assert (counted["synchronisations"] == 0) == (bulk != 0)
            if bulk is None:
                assert counted["graph_launches"] == 100  # one a step; init has none
    for loss, state in zip(losses[1:], states[1:]):
        assert loss == losses[0]
        assert all(state[n].tobytes() == states[0][n].tobytes() for n in state)


def test_several_steps_with_one_launch_are_single_steps(name: str) -> None:
    """From the host's memory and from the device's, with steps left over."""
    states, losses = [], []
    for together in (1, 4, 16):
        with load(name, steps_per_launch=together) as gpu:
            made = [batch(gpu, s) for s in range(37)]
            given: dict[str, Any] = {n: np.stack([b[n] for b in made]) for n in made[0]}
            before = gpu.counters["graph_launches"]
            found = gpu.train_steps({**b, "lr": 0.01 + 0.001 * i} for i, b in enumerate(made))
            assert gpu.counters["graph_launches"] - before == 37 // together + (37 % together if together > 1 else 0)
            found += gpu.train_steps(**given)
            whole = [n for n in given if given[n].dtype == np.float32]
            device = devices.device(0)
            for n in whole:
                there = gpu._backend.new_array("f32", given[n].shape)
                assert isinstance(there, DeviceArray)
                with device:
                    device.driver.copy_in(there.address, given[n].ctypes.data, given[n].nbytes, device.inbox)
                    device.driver.synchronise(device.inbox)
                given[n] = there
            found += gpu.train_steps(**given)
            losses.append([r.loss for r in found])
            states.append(gpu.state_tensors())
            assert gpu.step == 111 and gpu.counters["synchronisations"] == 0
    for loss, state in zip(losses[1:], states[1:]):
        assert loss == losses[0]
        assert all(state[n].tobytes() == states[0][n].tobytes() for n in state)


def test_two_runs_are_the_same_bit_for_bit(name: str) -> None:
    found = []
    for _ in range(2):
        with load(name, contexts=2) as gpu:
            for step in range(30):
                gpu.train_step(**batch(gpu, step))
            found.append({n: v.tobytes() for n, v in gpu.state_tensors().items()})
    assert found[0] == found[1]


@pytest.mark.usefixtures("gpu_alone")
def test_memory_is_what_was_said(name: str) -> None:
    load(name).close()  # the driver has taken what it takes once
    device = devices.device(0)
    with device:
        device.pool.release_cached()
    before = devices.memory_info()
    with load(name, contexts=2) as first:
        taken = devices.memory_info()
        assert taken.used == first._backend.bytes  # type: ignore[attr-defined]
        needs = session_needs(first.artifact, contexts=2)
        assert {taken.used} == {uses["load"] for target, uses in needs.items() if target != "cpu"}
        driver = before.free - taken.free
        assert driver - taken.used <= max(taken.used // 100, 64 * MIB), (driver, taken.used)
        with load(name, contexts=2):
            assert devices.memory_info().used == 2 * taken.used
        for step in range(20):
            first.train_step(**batch(first, step))
        assert devices.memory_info().used == taken.used
    print(name, "planned", taken.used, "driver", driver)


@pytest.mark.usefixtures("gpu_alone")
def test_ten_blocks_of_a_fifth_of_the_memory_one_after_another() -> None:
    device = devices.device(0)
    with device:
        total = device.pool.info().total
        for number in range(10):
            block = device.pool.allocate(total // 5 + number * 2 * MIB)
            device.driver.fill(block.address, number, 1, block.size, device.inbox)
            device.driver.synchronise(device.inbox)
            device.pool.free(block)
        device.pool.release_cached()


@pytest.mark.usefixtures("gpu_alone")
def test_a_load_that_does_not_fit_says_so_and_takes_nothing(name: str) -> None:
    device = devices.device(0)
    with device:
        free, _ = device.driver.memory()
        ballast = device.pool.allocate(free - 200 * MIB)  # less than a load leaves free
        before = device.pool.info()
    try:
        with pytest.raises(OutOfMemory) as caught:
            load(name, contexts=256)
        assert caught.value.code == "R401" and devices.memory_info().used == before.used
        print(caught.value)
    finally:
        with device:
            device.pool.free(ballast)
            device.pool.release_cached()
    load(name).close()


def test_threads(name: str) -> None:
    with load(name, contexts=4) as gpu:
        inputs = [images(gpu, i, 1 + i % 70) for i in range(80)]
        expected = [gpu.predict(**x) for x in inputs]
        numbers = itertools.count()
        wrong: list[object] = []

        def work() -> None:
            try:
                while (i := next(numbers)) < 5 * len(inputs):
                    if not np.array_equal(gpu.predict(**inputs[i % 80]), expected[i % 80]):
                        wrong.append(i)
            except BaseException as error:  # noqa: BLE001
                wrong.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_tensors_of_torch_go_in_and_come_out(name: str) -> None:
    torch = pytest.importorskip("torch")
    with load(name) as gpu, load(name) as other:
        for rows in (1, 64, 70):
            given = images(gpu, rows, rows)
            want = gpu.predict(**given)
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):  # late on a stream of torch's
                slow = torch.randn(4096, 4096, device="cuda")
                for _ in range(20):
                    slow = slow @ slow * 1e-3
                there = {n: torch.from_numpy(v).pin_memory().to("cuda", non_blocking=True) for n, v in given.items()}
                there = {n: (t + 0 * slow.sum().nan_to_num(0, 0, 0)).to(t.dtype) for n, t in there.items()}
                got = gpu.predict(**there)
                assert isinstance(got, DeviceArray)
                back = torch.from_dlpack(got)
                assert back.is_cuda and np.array_equal(back.cpu().numpy(), want)
            interface = torch.as_tensor(got, device="cuda")
            assert interface.data_ptr() == got.address and np.array_equal(got.numpy(), want)
        for step in range(5):
            here = batch(gpu, step)
            there = {n: torch.from_numpy(v).cuda() for n, v in here.items()}
            one, two = gpu.train_step(**there), other.train_step(**here)
            for tensor in there.values():
                tensor.zero_()  # its owner goes on
            assert one == two
        del got, back, interface
        kept = torch.from_dlpack(gpu.predict(**{n: torch.from_numpy(v).cuda() for n, v in given.items()}))
    assert np.array_equal(kept.cpu().numpy(), other_result(name, given, want.shape))
    del kept
    devices.device(0).info()


def other_result(name: str, given: dict[str, np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """What a session gives after the five steps."""
    with load(name) as again:
        for step in range(5):
            again.train_step(**batch(again, step))
        found: np.ndarray = again.predict(**given)
        assert found.shape == shape
        return found


def run(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    text = textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", text, *args], capture_output=True, text=True, timeout=120)


def test_a_process_ends_without_closing(name: str) -> None:
    ran = run(
        """
        import sys
        from dslc.runtime.session.load import load
        session = load(sys.argv[1], device="gpu", weights="init")
        kept = session.weights
        print(session)
        """,
        str(path(name)),
    )
    assert ran.returncode == 0 and ran.stderr == "" and "gpu:0" in ran.stdout


def test_a_lost_gpu_is_told_with_what_came_first(name: str) -> None:
    ran = run(
        """
        import sys
        from contextlib import suppress
        from dslc.base.errors import DeviceLostError
        from dslc.runtime.cuda.arguments import Arguments
        from dslc.runtime.session.load import load
        session = load(sys.argv[1], device="gpu", weights="init")
        [lane] = session._backend._lanes
        launch = next(s for plan in session._backend.contexts[0].values() for bound in plan._of_slot.values()
                      for g in bound.groups for s in g.steps
                      if hasattr(s, "function"))
        with lane.device as device:
            wrong = Arguments([("pointer", 8)] * launch.args.count)
            device.driver.launch(launch.function, launch.grid, launch.block, launch.shared, wrong, lane.stream)
            with suppress(DeviceLostError):  # until then nobody knows
                device.driver.synchronise(lane.stream)
        for call in (session.state_tensors, session.initialise, lambda: session.weights[next(iter(session.weights))]):
            try:
                call()
            except DeviceLostError as error:
                print(error.code, error.message)
        session.close()
        """,
        str(path(name)),
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) == 3 and all(line.startswith("R207 the GPU is lost to this process") for line in lines), lines
    assert DeviceLostError.__mro__  # the parent's GPU is well
    load(name).close()


def test_a_forked_child_is_refused(name: str) -> None:
    ran = run(
        """
        import os, sys, warnings
        warnings.simplefilter("ignore")
        import dslc
        from dslc.runtime.session.load import load
        session = load(sys.argv[1], device="gpu", weights="init")
        child = os.fork()
        if not child:
            for call in (session.state_tensors, dslc.devices, lambda: load(sys.argv[1], device="gpu")):
                try:
                    call()
                except dslc.ForkError:
                    continue
                os._exit(1)
            session.close()
            os._exit(7)
        _, status = os.waitpid(child, 0)
        session.state_tensors()
        print(os.waitstatus_to_exitcode(status))
        """,
        str(path(name)),
    )
    assert ran.stdout.strip() == "7", ran.stderr


def test_times(name: str) -> None:
    """Prints; nothing is asserted but that it runs."""
    begun = time.perf_counter()
    with load(name) as gpu:
        loaded = time.perf_counter() - begun
        batches = [batch(gpu, s) for s in range(8)]
        small = images(gpu, 0, 1)
        for s in range(20):
            gpu.train_step(**batches[s % 8])
            gpu.predict(**small)
        begun = time.perf_counter()
        results = [gpu.train_step(**batches[s % 8]) for s in range(500)]
        submitted = time.perf_counter() - begun
        assert np.isfinite(results[-1].loss)
        done = time.perf_counter() - begun
        begun = time.perf_counter()
        for _ in range(300):
            gpu.predict(**small)
        predicted = time.perf_counter() - begun
        print(
            f"{name}: load {1e3 * loaded:.0f} ms, train_step {2e3 * done:.1f} us (submitted {2e3 * submitted:.1f} us), "
            f"predict of one {1e6 * predicted / 300:.1f} us, {dslc.devices()[0]}"
        )
