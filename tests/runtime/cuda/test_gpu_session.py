"""A session on the fake driver gives what the same artifact gives on the CPU, bit for bit, and with few calls."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifacts import line_model
from fake_gpu.fake_driver import FakeDriver, Refused, Stream
from fake_gpu.gpu_model import write_gpu_line
from fake_gpu.gpu_pair import FEATURES, ROWS, Machine, Pair, batch, equal
from places import with_support

from dslc.base.errors import (
    ArtifactError,
    DeviceLostError,
    DslcError,
    DslcWarning,
    EnvironmentFault,
    InputError,
    OutOfMemory,
    WeightsMissing,
)  # fmt: skip
from dslc.runtime.artifact.file import read_artifact
from dslc.runtime.cpu import backend as cpu_backend
from dslc.runtime.cuda import device as devices
from dslc.runtime.cuda import transfers
from dslc.runtime.cuda.arrays import inputs
from dslc.runtime.session import host_copies
from dslc.runtime.session.load import load
from dslc.runtime.session.open import USES, driver_needs, session_needs
from dslc.runtime.session.session import Session


@pytest.mark.parametrize("bulk", [None, 0, 1, 15, "all"])
@pytest.mark.parametrize("bulks", [True, False])
def test_a_session_is_the_same_on_both(pair: Callable[..., Pair], bulk: int | str | None, bulks: bool) -> None:
    both = pair(bulks=bulks, options={"bulk": bulk}).both
    assert equal(*both(lambda s: s.state_tensors()))  # of init
    for rows in (1, 4, 5, 9):  # whole, in pieces, and padded
        assert equal(*both(lambda s: s.predict(x=batch(0, rows)["x"], row=3)))  # noqa: B023
    for step in range(6):
        assert equal(*both(lambda s: s.train_step(**batch(step), lr=0.01 * (step + 1), beta=0.25)))  # noqa: B023
    assert equal(*both(lambda s: s.evaluate(**batch(3, 11))))
    assert equal(*both(lambda s: s.state_tensors()))
    assert equal(*both(lambda s: {**s.weights})) and equal(*both(lambda s: s.step))


def test_results_may_be_read_late_or_never(pair: Callable[..., Pair]) -> None:
    one = pair()
    late = [one.gpu.train_step(**batch(s)) for s in range(7)]
    now = [one.cpu.train_step(**batch(s)) for s in range(7)]
    assert [r.step for r in late] == list(range(7))
    del late[2]
    del now[2]
    assert late == now and [repr(r) for r in late] == [repr(r) for r in now]
    one.gpu.train_step(**batch(8))  # and closed while it is under way


def test_a_step_is_one_graph_launch_and_no_synchronisation(pair: Callable[..., Pair]) -> None:
    one = pair()
    for step in range(3):
        one.gpu.train_step(**batch(step))
    before, calls = one.gpu.counters, one.fake.calls.copy()
    results = [one.gpu.train_step(**batch(step)) for step in range(50)]
    after, made = one.gpu.counters, one.fake.calls - calls
    assert after["graph_launches"] - before["graph_launches"] == 50 == made["cuGraphLaunch"]
    assert after["launches"] == before["launches"] and after["synchronisations"] == 0 and after["compilations"] == 0
    assert not made["cuStreamSynchronize"] and not made["cuMemAlloc"] and not made["cuMemHostAlloc"]
    assert not made["cuGraphInstantiate"] and not made["cuModuleLoadData"] and not made["cuLaunchKernel"]
    io = 256 + 64 + 16  # the step block, x in 48 bytes, target in 16
    assert (after["bytes_in"] - before["bytes_in"]) == 50 * io
    assert sum(made.values()) <= 50 * 20  # calls of the driver
    assert results[0].loss > 0


@pytest.mark.parametrize("bulk", [None, 0])
def test_a_sound_program_makes_no_call_that_the_driver_refuses(pair: Callable[..., Pair], bulk: int | None) -> None:
    """Tools that watch the driver report each refusal as an error of the program."""
    one = pair(bulks=bulk is None, options={"bulk": bulk})
    for step in range(5):
        one.gpu.train_step(**batch(step))
    one.gpu.train_steps([batch(5), batch(6), batch(7)])
    one.gpu.predict(x=batch(0, 5)["x"])
    one.gpu.evaluate(**batch(3, 11))
    one.gpu.restore(one.gpu.state_tensors(), 3)
    one.gpu.close()
    assert not one.fake.refused
    assert one.fake._called("cuMemFree", FakeDriver.do_cuMemFree, (1,))[0] and one.fake.refused  # they are counted


def test_bulk_0_is_one_launch_and_one_synchronisation_an_instruction(pair: Callable[..., Pair]) -> None:
    one = pair(options={"bulk": 0})
    before = one.gpu.counters
    one.gpu.train_step(**batch(0))
    after = one.gpu.counters
    assert after["launches"] - before["launches"] == 2 == after["synchronisations"] - before["synchronisations"]
    assert after["graph_launches"] == 0


def test_a_load_takes_what_it_says_and_two_loads_the_same(pair: Callable[..., Pair]) -> None:
    one = pair(options={"contexts": 2})
    first = devices.memory_info("gpu")
    assert first.used == one.gpu._backend.bytes  # type: ignore[attr-defined]
    assert first.used == session_needs(one.gpu.artifact, contexts=2)["sm_90"]["load"]
    with load(one.path, device="gpu:0", contexts=2):
        second = devices.memory_info("gpu")
        assert second.used == 2 * first.used and second.free == first.free - first.used
    assert devices.memory_info("gpu").used == first.used
    with load(one.path, device="gpu", contexts=2):
        assert devices.memory_info("gpu").allocations == second.allocations  # from the cache


@pytest.mark.parametrize("use", [*USES])
def test_a_session_for_some_calls_takes_what_is_said_of_it(
    pair: Callable[..., Pair], use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, taken = pair(), list[int]()

    def block(size: int) -> np.ndarray:
        taken.append(size)
        return blocks(size)

    blocks = cpu_backend.block
    monkeypatch.setattr(cpu_backend, "block", block)
    before = devices.memory_info("gpu").used
    given = {"calls": USES[use], "meanings": line_model.MEANINGS, "weights": "init", "seed": 7}
    needs = session_needs(one.gpu.artifact)
    with load(one.path, device="gpu", **given) as session, load(one.path, device="cpu", **given) as host:
        assert devices.memory_info("gpu").used - before == needs["sm_90"][use]
        assert sum(taken) == needs["cpu"][use]
        does = {
            "train_step": lambda s: s.train_step(**batch(1)).loss,
            "evaluate": lambda s: s.evaluate(**batch(2)),
            "predict": lambda s: s.predict(x=batch(3)["x"]),
        }
        for call, do in does.items():
            if call in USES[use]:
                assert equal(do(session), do(host)) and equal(do(one.gpu), do(one.cpu))
                continue
            for each in (session, host):
                with pytest.raises(InputError, match=f"loaded for other calls than `{call}`") as caught:
                    do(each)
                assert caught.value.code == "R105" and f"'{call}'" in str(caught.value.help)
        assert session.state_tensors().keys() == one.gpu.state_tensors().keys()
    needs = needs["sm_90"]
    assert max(needs["eval"], needs["predict"], needs["train"]) <= needs["load"] and needs["predict"] < needs["load"]


@pytest.mark.parametrize("calls", [(), "predict", ("train",), 7, ("predict", 1)])
def test_calls_that_there_are_not(pair: Callable[..., Pair], calls: Any) -> None:
    with pytest.raises(InputError, match="`calls` is") as caught:
        load(pair().path, calls=calls)
    assert "'train_step', 'evaluate', 'predict'" in str(caught.value.help)


def test_weights_and_checkpoints(pair: Callable[..., Pair], tmp_path: Path) -> None:
    one = pair()
    one.both(lambda s: [s.train_step(**batch(i)).loss for i in range(3)])
    one.gpu.weights.save(tmp_path / "gpu.safetensors")
    one.cpu.weights.save(tmp_path / "cpu.safetensors")
    assert (tmp_path / "gpu.safetensors").read_bytes() == (tmp_path / "cpu.safetensors").read_bytes()
    one.gpu.save_checkpoint(tmp_path / "gpu.ckpt", {"a": "b"})
    one.gpu.train_step(**batch(9))
    one.gpu.weights["w"] = np.zeros((2, FEATURES), np.float32)
    assert not one.gpu.weights["w"].any()
    assert one.gpu.load_checkpoint(tmp_path / "gpu.ckpt") == {"a": "b"} and one.gpu.step == 3
    assert equal(*one.both(lambda s: s.train_step(**batch(4))))
    one.gpu.weights.load(tmp_path / "cpu.safetensors")
    one.cpu.weights.load(tmp_path / "cpu.safetensors")
    assert equal(*one.both(lambda s: s.train_step(**batch(5))))  # the optimizer's slots start again
    assert equal(*one.both(lambda s: s.state_tensors()))


def test_a_gradient_that_is_not_finite(pair: Callable[..., Pair]) -> None:
    one = pair()
    bad = batch(0)
    bad["x"][1, 1] = np.inf
    gpu, cpu = one.both(lambda s: s.train_step(**bad))
    assert gpu.nonfinite == cpu.nonfinite == "w"
    found, there = one.both(lambda s: s.find_nonfinite(**bad))
    assert (found.where, found.index, found.value, found.shape) == (there.where, there.index, there.value, there.shape)
    assert found.op is None and found.where == "x"
    one.both(lambda s: s.initialise())
    huge = batch(1)
    huge["x"][:] = 3e38  # finite, and its products are not
    found, there = one.both(lambda s: s.find_nonfinite(**huge))
    assert found.op == "kernel" and found.where == there.where == "descend linear.nn:2" and found.count == there.count
    one.both(lambda s: s.initialise())
    assert one.both(lambda s: s.find_nonfinite(**batch(1))) == (None, None)
    assert equal(*one.both(lambda s: s.state_tensors()))


def test_threads_give_what_one_after_another_gives(pair: Callable[..., Pair]) -> None:
    one = pair(options={"contexts": 3})
    inputs = [batch(i, 1 + i % 7)["x"] for i in range(60)]
    expected = [one.cpu.predict(x=x) for x in inputs]
    got: dict[int, Any] = {}
    numbers = itertools.count()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            while (i := next(numbers)) < len(inputs):
                got[i] = one.gpu.predict(x=inputs[i])
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and all(equal(got[i], e) for i, e in enumerate(expected))


def test_a_predict_sees_the_step_before_it_on_another_stream(pair: Callable[..., Pair]) -> None:
    one = pair(options={"contexts": 2})
    for step in range(4):
        one.both(lambda s: s.train_step(**batch(step)))  # noqa: B023
        assert equal(*one.both(lambda s: s.predict(x=batch(0)["x"])))


def test_wrong_inputs_are_told_as_on_the_cpu(pair: Callable[..., Pair]) -> None:
    one = pair()
    for wrong in ({}, {"x": [1]}, {"x": np.full((2, FEATURES), 1e300)}, {"x": np.zeros((2, 9), np.float32)}):
        said = []
        for session in (one.gpu, one.cpu):
            with pytest.raises(InputError) as caught:
                session.predict(**wrong)
            said.append(str(caught.value))
        assert said[0] == said[1]
    with pytest.raises(InputError, match="does not fit"):
        one.gpu.train_step(**batch(0), lr=1e300)
    assert equal(*one.both(lambda s: s.train_step(**batch(0))))


def test_which_device(tmp_path: Path, machine: Machine) -> None:
    both, kernels = write_gpu_line(tmp_path, targets=("cpu", "sm_90"), name="both")
    gpu_only, gpu_kernels = write_gpu_line(tmp_path, targets=("sm_90",), name="only", ptx=False)
    options = {"meanings": line_model.MEANINGS}
    fake = machine(**kernels.driver())
    with load(both, **options) as session:
        assert session.device == "gpu:0" and "on gpu:0" in repr(session)
    with load(both, device="cpu", **options) as session:
        assert session.device == "cpu" and session.counters == {}
    with pytest.raises(EnvironmentFault, match="there is no GPU 3"):
        load(both, device="gpu:3", **options)
    for bad in ("gpu:", "gpu:-1", "gpu:01", "cuda", "GPU", 0, "gpu:1000"):
        with pytest.raises(InputError, match="`device`"):
            load(both, device=bad, **options)  # type: ignore[arg-type]

    machine(**kernels.driver(devices=0))
    with pytest.warns(DslcWarning, match="runs on the CPU: there is no GPU") as told, load(both, **options) as session:
        assert session.device == "cpu" and told[0].message.code == "W006"  # type: ignore[union-attr]
        assert told[0].filename == __file__
    for device in ("gpu", "gpu:0"):
        with pytest.raises(EnvironmentFault) as caught:
            load(both, device=device, **options)
        assert caught.value.code == "R201"
    with pytest.raises(EnvironmentFault, match="there is no GPU") as caught:
        load(gpu_only)
    assert caught.value.code == "R201"

    machine(**kernels.driver(capability=(8, 0)))
    with pytest.raises(EnvironmentFault, match="built for sm_90, not for the Fake GPU, which is sm_80") as caught:
        load(gpu_only)
    assert caught.value.code == "R202" and "dslc build --target sm_90,sm_80" in str(caught.value.help)
    with pytest.warns(DslcWarning, match="which is sm_80"), load(both, **options) as session:
        assert session.device == "cpu"
    with pytest.raises(EnvironmentFault, match="built for sm_90, not for a CPU") as caught:
        load(gpu_only, device="cpu")
    assert caught.value.code == "R202" and "dslc build --target sm_90,cpu" in str(caught.value.help)

    machine(**gpu_kernels.driver(capability=(10, 0)))
    with pytest.raises(ArtifactError, match=r"no blob .*\.ptx"):
        load(gpu_only)
    fake = machine(**kernels.driver(capability=(10, 0)))
    with pytest.warns(DslcWarning, match="code for sm_90; the driver compiled its PTX for the Fake GPU") as told:
        session = load(both, weights="init", **options)
    assert told[0].filename == __file__
    assert session.counters["compilations"] == fake.calls["cuModuleLoadData"] > 0
    session.close()
    assert devices.device(0).info().memory.used == 0


def test_it_does_not_fit(tmp_path: Path, machine: Machine) -> None:
    path, kernels = write_gpu_line(tmp_path)
    fake = machine(**kernels.driver(total=64 << 20))
    with pytest.raises(OutOfMemory) as caught:
        load(path, weights="init")
    error = caught.value
    assert error.code == "R401" and error.place == "gpu:0" and "`x` of " in error.message
    assert "the session needs" in error.message and not fake.calls["cuMemAlloc"] and not fake.calls["cuStreamCreate"]
    fake = machine(**kernels.driver(total=1 << 30))
    spare = (64 << 20) + driver_needs(read_artifact(path))["sm_90"]["load"]
    fake.used_elsewhere = (1 << 30) - spare - 2500  # room for the state and half of the rest
    with pytest.raises(OutOfMemory) as caught:
        load(path, weights="init")
    assert "about B=" in str(caught.value.help)
    fake.used_elsewhere = 0
    load(path, weights="init").close()


def test_no_weights_and_closed(pair: Callable[..., Pair], tmp_path: Path) -> None:
    one = pair()
    with load(one.path, device="gpu") as session, pytest.raises(WeightsMissing):
        session.predict(x=batch(0)["x"])
    session.close()
    for call in (lambda: session.predict(x=batch(0)["x"]), lambda: session.weights["w"], session.state_tensors):
        with pytest.raises(ArtifactError, match="the session is closed"):
            call()
    used = devices.memory_info().used
    with pytest.raises(DslcError):
        load(one.path, device="gpu", weights=tmp_path / "none.safetensors")
    assert devices.memory_info().used == used  # a load that fails keeps nothing


def test_a_forgotten_session_gives_its_memory_back(pair: Callable[..., Pair]) -> None:
    one = pair()
    used = devices.memory_info().used
    session = load(one.path, device="gpu", weights="init")
    result = session.train_step(**batch(0))
    assert devices.memory_info().used == 2 * used
    del session, result
    gc.collect()
    assert devices.memory_info().used == used


def test_a_lost_gpu(tmp_path: Path, machine: Machine) -> None:
    path, kernels = write_gpu_line(tmp_path)
    fake = machine(**kernels.driver())
    session = load(path, weights="init")
    result = session.train_step(**batch(0))
    fake.dead = 700  # the state after a kernel's invalid access
    with pytest.raises(DeviceLostError, match="ILLEGAL_ADDRESS") as caught:
        result.loss  # noqa: B018
    assert caught.value.code == "R207" and "train_step@B=4" in str(caught.value.place)
    made = len(fake.log)
    for call in (
        lambda: session.predict(x=batch(0)["x"]),
        lambda: session.train_step(**batch(1)),
        session.state_tensors,
    ):
        with pytest.raises(DeviceLostError, match="ILLEGAL_ADDRESS"):
            call()
    session.close()
    assert len(fake.log) == made  # nothing was tried on a dead context


@pytest.mark.parametrize("code", [2, 999, 700])
def test_every_call_of_a_load_may_fail(tmp_path: Path, machine: Machine, code: int) -> None:
    path, kernels = write_gpu_line(tmp_path, ptx=False)

    def run(fake: FakeDriver) -> None:
        load(path, weights="init").close()
        devices.device(0).close()

    fake = machine(**kernels.driver())
    run(fake)
    assert fake.leaks() == {}
    names = list(fake.log)
    fired = 0
    for number in range(1, len(names) + 1):
        fake = machine(**kernels.driver())
        fake.fail_at, fake.fail_with = number, code
        try:
            run(fake)
        except DslcError as error:
            assert error.code.startswith("R") and error.place
            if code == 700:
                assert isinstance(error, DeviceLostError)
        else:
            # memory is asked for twice; close waits for the results of init, which nobody reads
            tried = names[number - 1]
            waits = tried.startswith("cuCtx") and "cuEventQuery" in names[number - 2 : number + 1]
            assert waits or tried in ("cuMemAlloc", "cuEventQuery", "cuEventSynchronize"), tried
        fired += fake.fired
        if code == 700 or names[number - 1] in LETTING_GO:
            continue  # what is lost, or was not let go of, is the driver's
        fake.fail_at = None
        if devices.device(0).pool._used:  # a session that could not be closed is let go of later
            gc.collect()
        if not fake.retained:  # the run was complete
            assert fake.leaks() == {}
            continue
        assert devices.device(0).info().memory.used == 0, names[number - 1]
        devices.device(0).close()
        assert fake.leaks() == {}, names[number - 1]
    assert fired == len(names)


LETTING_GO = (
    "cuMemFree", "cuMemFreeHost", "cuStreamDestroy", "cuEventDestroy", "cuModuleUnload", "cuGraphDestroy",
    "cuGraphExecDestroy", "cuDevicePrimaryCtxRelease", "cuCtxPopCurrent",
)  # fmt: skip


@pytest.mark.parametrize("code", [999, 700])
@pytest.mark.parametrize("what", ["predict", "kept", "parts", "train_step", "evaluate", "save"])
def test_every_call_of_a_run_may_fail(
    tmp_path: Path, machine: Machine, code: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is ours; the session goes on with the right numbers, or says why it cannot. ``kept``: callers
    keep the memory of results; ``parts``: inputs are sent in parts."""
    path, kernels = write_gpu_line(tmp_path, ptx=False)
    monkeypatch.setattr(transfers, "LENT", 8 if what == "kept" else transfers.LENT)
    monkeypatch.setattr(host_copies, "PART", 20 if what == "parts" else host_copies.PART)
    monkeypatch.setattr(inputs, "DIRECT", 1 if what == "parts" else inputs.DIRECT)

    def run(session: Session) -> Any:
        match what:
            case "predict":
                return session.predict(x=batch(1, 6)["x"])
            case "parts":
                return session.predict(x=batch(1, 2 * ROWS)["x"])
            case "kept":
                return tuple(session.predict(x=batch(step)["x"]) for step in range(4))
            case "train_step":
                return [(r.loss, r.metrics) for r in [session.train_step(**batch(i)) for i in range(3)]]
            case "evaluate":
                return session.evaluate(**batch(1, 6))
        return session.state_tensors()

    fake = machine(**kernels.driver())
    with load(path, weights="init") as session:
        before = len(fake.log)
        expected = run(session)
        count = len(fake.log) - before
    assert count > 5
    for number in range(1, count + 1):
        fake = machine(**kernels.driver())
        session = load(path, weights="init")
        fake.fail_at, fake.fail_with = len(fake.log) + number, code
        with pytest.raises(DslcError) as caught:
            run(session)
        assert fake.fired == 1 and caught.value.place
        fake.fail_at = None
        if code == 700:
            with pytest.raises(DeviceLostError):
                run(session)
            continue
        if what == "train_step":
            session.initialise()
        assert equal(run(session), expected), fake.log[-1]
        session.close()
        assert devices.device(0).info().memory.used == 0
        devices.device(0).close()
        assert fake.leaks() == {}


def fail_next(fake: FakeDriver, name: str, code: int = 999) -> None:
    """The next call of this name fails, and it alone."""
    original = getattr(FakeDriver, "do_" + name)

    def refuse(*args: Any) -> Any:
        setattr(FakeDriver, "do_" + name, original)
        raise Refused(code)

    setattr(FakeDriver, "do_" + name, refuse)


@pytest.mark.parametrize("name", ["cuGraphLaunch", "cuMemcpyDtoHAsync", "cuEventRecord"])
def test_nothing_is_under_way_after_a_run_that_failed(pair: Callable[..., Pair], name: str) -> None:
    """What was submitted may read memory that its owner takes back once the call has raised."""
    one = pair()
    one.both(lambda s: s.predict(x=batch(0)["x"]))
    fail_next(one.fake, name)
    with pytest.raises(EnvironmentFault):
        one.gpu.predict(x=batch(1)["x"])
    assert not any(stream.queue for stream in one.fake.objects.values() if isinstance(stream, Stream))
    assert equal(*one.both(lambda s: s.predict(x=batch(2)["x"])))


@pytest.mark.parametrize(
    ("name", "torn"), [("cuMemcpyHtoDAsync", False), ("cuGraphLaunch", True), ("cuMemcpyDtoHAsync", True)]
)
def test_a_step_that_failed_halfway_says_so(pair: Callable[..., Pair], name: str, torn: bool) -> None:
    one = pair()
    one.both(lambda s: s.train_step(**batch(0)))
    fail_next(one.fake, name)
    with pytest.raises(EnvironmentFault, match=name):
        one.gpu.train_step(**batch(1))
    if torn:
        for call in (lambda: one.gpu.predict(x=batch(0)["x"]), lambda: one.gpu.train_step(**batch(1))):
            with pytest.raises(
                ArtifactError, match="a training step or a change of the weights was interrupted"
            ) as caught:
                call()
            assert caught.value.code == "R310"
        one.gpu.restore(one.cpu.state_tensors(), 1)
    assert equal(*one.both(lambda s: s.train_step(**batch(1))))
    assert equal(*one.both(lambda s: s.state_tensors()))


def test_a_machine_that_only_runs_needs_numpy_and_the_bindings(tmp_path: Path) -> None:
    """Neither the compiler nor what else dslc depends on is imported to load, train, predict and save."""
    code = """
        import sys
        from pathlib import Path
        folder = Path(sys.argv[1])
        class Blocked:
            def find_spec(self, name, path=None, target=None):
                top = name.split(".")[0]
                if top in ("llvmlite", "numba", "lark", "yaml", "rich", "click") or name.startswith(
                    ("dslc.compiler", "dslc.dsl", "cuda.core")
                ):
                    raise ImportError(f"{name} is not on this machine")
        sys.meta_path.insert(0, Blocked())
        import numpy as np
        from fake_gpu.fake_driver import FakeDriver
        from fake_gpu.gpu_model import write_gpu_line
        from dslc.runtime.cuda import device
        from dslc.runtime.cuda.driver import Driver
        path, kernels = write_gpu_line(folder)
        fake = FakeDriver(**kernels.driver())
        device.load_driver = lambda: Driver(fake)
        import dslc
        with dslc.load(path, weights="init") as session:
            session.train_step(x=np.zeros((4, 3), np.float32), target=np.zeros(4, np.int32))
            session.predict(x=np.zeros((3, 3), np.float32))
            session.weights.save(folder / "w.safetensors")
            print(session.device, dslc.devices()[0].target)
        with dslc.load(path, weights="init", bulk=0) as session:
            before = session.counters["launches"]
            session.train_step(x=np.zeros((4, 3), np.float32), target=np.zeros(4, np.int32)).loss
            print(session.counters["graph_launches"], session.counters["launches"] > before)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        capture_output=True, text=True, cwd=tmp_path, env=with_support(),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split("\n")[:2] == ["gpu:0 sm_90", "0 True"]
