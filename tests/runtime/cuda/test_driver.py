"""Return codes become errors that say what happened; a lost GPU stays lost."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest
from fake_gpu.fake_driver import FakeDriver

from dslc.base.errors import DeviceLostError, DslcError, EnvironmentFault, ForkError, InputError, OutOfMemory
from dslc.runtime.cuda import device as devices
from dslc.runtime.cuda.arguments import Arguments
from dslc.runtime.cuda.device import Device
from dslc.runtime.cuda.driver import Driver
from dslc.runtime.cuda.owned import Owned


@pytest.mark.parametrize(
    ("code", "ours", "kind"),
    [
        (1, "R206", EnvironmentFault),
        (2, "R401", OutOfMemory),
        (3, "R201", EnvironmentFault),
        (100, "R201", EnvironmentFault),
        (101, "R201", EnvironmentFault),
        (209, "R202", EnvironmentFault),
        (218, "R202", EnvironmentFault),
        (222, "R202", EnvironmentFault),
        (700, "R207", DeviceLostError),
        (702, "R207", DeviceLostError),
        (719, "R207", DeviceLostError),
        (999, "R206", EnvironmentFault),
    ],
)
def test_a_code_of_the_driver_is_an_error_of_ours(
    gpu: tuple[FakeDriver, Device], code: int, ours: str, kind: type[DslcError]
) -> None:
    fake, device = gpu
    with device:
        fake.fail_at, fake.fail_with = len(fake.log) + 1, code
        with pytest.raises(kind) as caught:
            device.driver.stream([])
        if kind is DeviceLostError:
            fake.dead = 0  # or the context could not be popped
            device.driver.lost = None
    error = caught.value
    assert error.code == ours and error.place == "cuStreamCreate" and error.help
    assert f"({code})" in error.message and "cuStreamCreate gave CUDA_ERROR" in error.message
    assert "the fake driver was told to fail" in error.message  # the driver's own text


def test_after_a_sticky_error_every_call_says_what_came_first(gpu: tuple[FakeDriver, Device]) -> None:
    fake, device = gpu
    with device:
        owned = Owned(device)
        event, stream = device.driver.event(owned.noted), device.driver.stream(owned.noted)
        block = device.pool.allocate(5000)
        fake.fail_at, fake.fail_with = len(fake.log) + 1, 700
        with pytest.raises(DeviceLostError):
            device.driver.synchronise(stream)
        made = len(fake.log)
        for call in (device.driver.memory, lambda: device.driver.stream([]), lambda: device.driver.done(event)):
            with pytest.raises(DeviceLostError, match=r"ILLEGAL_ADDRESS \(700\)") as caught:
                call()
            assert "after cuStreamQuery" in str(caught.value) and "restart the process" in str(caught.value)
        owned.close()  # nothing to let go of any more, and no error over the error
        device.pool.free(block)
    assert len(fake.log) == made
    with pytest.raises(DeviceLostError), device:
        pass


def test_arguments_are_pointers_to_eight_bytes_each() -> None:
    import ctypes

    kinds = [("pointer", 2**63 + 5), ("i32", -7), ("i64", -(2**62)), ("f32", 0.5), ("f64", 0.1)]
    args = Arguments(kinds)
    where = [ctypes.c_void_p.from_address(args.address + 8 * i).value for i in range(5)]
    read = (ctypes.c_uint64, ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_double)
    assert [kind.from_address(at).value for kind, at in zip(read, where)] == [value for _, value in kinds]
    assert Arguments([]).count == 0


def test_no_driver_and_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where libcuda is missing, as on this machine or in a container without a GPU, R201 names it."""
    code = """
        import sys
        from dslc.base.errors import EnvironmentFault
        from dslc.runtime.cuda import driver
        if sys.argv[1] == "package":
            sys.modules["cuda.bindings"] = None
        else:
            import cuda.bindings.driver as real
            def missing(flags):
                raise RuntimeError("libcuda.so.1: cannot open shared object file")
            class Without:
                cuInit = staticmethod(missing)
            import cuda.bindings
            cuda.bindings.driver = Without
            sys.modules["cuda.bindings.driver"] = Without
        try:
            driver.load_driver()
        except EnvironmentFault as error:
            print(error)
    """
    for case, words in (("package", "the package cuda-bindings"), ("libcuda", "libcuda.so.1: cannot open")):
        ran = subprocess.run([sys.executable, "-c", textwrap.dedent(code), case], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.startswith("error[R201]") and words in ran.stdout and 'device="cpu"' in ran.stdout


def test_importing_dslc_touches_no_gpu_library() -> None:
    modules = "dslc, dslc.runtime.session.session, dslc.face"
    code = f"import sys, {modules}; print([m for m in sys.modules if m.startswith('cuda')])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_devices(machine: Callable[..., FakeDriver]) -> None:
    machine(devices=2, capability=(8, 6), total=1 << 28)
    found = devices.devices()
    assert [(d.index, d.name, d.capability, d.target) for d in found] == [
        (0, "Fake GPU", (8, 6), "sm_86"),
        (1, "Fake GPU", (8, 6), "sm_86"),
    ]
    assert found[0].memory.total == 1 << 28 and devices.memory_info("gpu:1").used == 0 == devices.memory_info(0).used
    for bad in ("cpu", "gpu:", "gpu:x", "gpu1"):
        with pytest.raises(InputError):
            devices.memory_info(bad)
    with pytest.raises(EnvironmentFault, match="there is no GPU 2: there are 2") as caught:
        devices.device(2)
    assert caught.value.code == "R201"
    machine(devices=0)
    assert devices.devices() == []
    with pytest.raises(EnvironmentFault, match="CUDA_VISIBLE_DEVICES"):
        devices.device(0)


def test_each_call_of_opening_a_device_may_fail(machine: Callable[..., FakeDriver]) -> None:
    fake = machine()
    with devices.device(0):
        pass
    for number in range(1, len(fake.log) + 1):
        failing = machine()
        failing.fail_at, failing.fail_with = number, 999
        with pytest.raises(EnvironmentFault), devices.device(0):
            pass
        assert failing.fired == 1 and failing.leaks() == {}
        failing.fail_at = None
        with devices.device(0):  # and it can be tried again
            pass


def test_a_thread_gets_its_context_back(gpu: tuple[FakeDriver, Device]) -> None:
    fake, device = gpu
    with device, device:
        assert len(fake._stack) == 2
    assert not fake._stack
    with pytest.raises(ValueError), device:
        raise ValueError
    assert not fake._stack


def test_a_forked_child_is_refused(gpu: tuple[FakeDriver, Device], monkeypatch: pytest.MonkeyPatch) -> None:
    fake, device = gpu
    made = len(fake.log)
    monkeypatch.setattr("dslc.runtime.session.fork._Generation.count", 1)
    for use in (device.__enter__, lambda: devices.device(0), devices.devices):
        with pytest.raises(ForkError) as caught:
            use()
        assert caught.value.code == "R204"
    device.leave(lambda: pytest.fail("called in a child"))
    assert len(fake.log) == made and not device._left


def test_what_finalizers_leave_is_let_go_of_at_the_next_use(gpu: tuple[FakeDriver, Device]) -> None:
    fake, device = gpu
    with device:
        block = device.pool.allocate(100)
    made = len(fake.log)
    device.leave(lambda: device.pool.free(block))
    assert len(fake.log) == made
    assert device.info().memory.used == 0


def test_elapsed_and_version(gpu: tuple[FakeDriver, Device]) -> None:
    _, device = gpu
    driver: Driver = device.driver
    assert driver.version() == 13000
    with device:
        stream = driver.stream([])
        start, end = driver.event([], timing=True), driver.event([], timing=True)
        driver.record(start, stream)
        driver.record(end, stream)
        assert not driver.done(end)
        driver.wait_host(end)
        assert driver.done(end) and driver.elapsed(start, end) == 1.0
