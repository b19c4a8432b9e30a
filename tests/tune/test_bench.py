"""What a check asks of the GPU, counted on a fake one: few launches, one copy to the host, one call if it is slow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fake_gpu.fake_driver import FakeDriver, fake_cubin
from tuning import planted

from dslc.runtime.cuda.device import Device
from dslc.runtime.cuda.libraries.libraries import Libraries
from dslc.runtime.cuda.owned import Owned
from dslc.tune.bench import Bench, Checked
from dslc.tune.candidate import Candidate, read_candidate
from dslc.tune.loaded import Machine


class Opened:
    def __init__(self, fake: FakeDriver, device: Device) -> None:
        self.fake, self.owned, self.limits = fake, Owned(device), list[float]()
        stream = device.driver.stream(self.owned.noted)
        module = device.driver.load_module(fake_cubin(90, "f4", "i4", parameters=6), self.owned.noted)
        functions = {"f32": device.driver.function(module, "f4"), "i32": device.driver.function(module, "i4")}
        machine = Machine(device, stream, Libraries(device, self.owned), "sm_90", False)
        self.bench = Bench(machine, lambda dtype: (functions[dtype], 2, 32), named("good"), True, self.limits.append)

    def check(self, symbol: str, workspace: int = 0) -> Checked:
        return self.bench.check(f"own {symbol}", named(symbol), workspace)


def named(symbol: str) -> Candidate:
    return read_candidate(planted.container(symbol), symbol)


@pytest.fixture
def opened(gpu: tuple[FakeDriver, Device]) -> Iterator[Opened]:
    fake, device = gpu
    fake.kernels |= planted.KERNELS
    for name in ("f4", "i4"):
        fake.kernels[name] = lambda *given, dtype=name: planted.compare(*given, dtype=dtype)
        fake.parameters[name] = 6
    with device:
        made = Opened(fake, device)
        yield made
        made.bench.close()
        made.owned.close()


def test_a_check_is_two_calls_three_comparisons_and_one_copy_to_the_host(opened: Opened) -> None:
    assert opened.check("slow").refused is None
    before = opened.fake.calls.copy()
    assert opened.check("good") == Checked(0.0, None, pytest.approx(2e-3))
    spent = opened.fake.calls - before
    # the result with the reference and with that of the first call, and the input with its copy
    assert spent["cuLaunchKernel"] == 2 + 3
    assert spent["cuMemcpyDtoHAsync"] == 1 and not spent["cuMemcpyHtoDAsync"]
    assert spent["cuStreamQuery"] == 2 * 2 + 1  # the fake is not ready at once: two for each call, one after the copy
    assert not spent["cuMemAlloc"]


def test_operands_are_written_again_after_a_bad_one_alone(opened: Opened) -> None:
    written = []
    for symbol in ("good", "slow", "into_input", "good", "slow"):
        before = opened.fake.calls.copy()
        opened.bench._accepted.pop(f"own {symbol}", None)
        assert (opened.check(symbol).refused is None) == (symbol != "into_input")
        written.append((opened.fake.calls - before)["cuMemsetD8Async"])
    assert written[0] == written[1] == written[2] == written[4] < written[3]


def test_one_that_is_much_slower_is_called_once_and_nobody_looks_at_its_result(opened: Opened) -> None:
    assert not opened.check("good").outdone
    before = opened.fake.calls.copy()
    found = opened.check("far")
    assert found.outdone and found.refused is None and found.seconds == pytest.approx(0.402)
    assert (opened.fake.calls - before)["cuLaunchKernel"] == 1
    assert [*opened.bench.time(0.01, lambda name: None)] == ["own good"]
    assert opened.check("slow").refused is None  # what the other wrote does not matter


def test_what_is_slow_may_need_less_workspace_or_be_the_only_one_of_its_provider(opened: Opened) -> None:
    assert not opened.check("good", workspace=512).outdone
    assert not opened.check("far", workspace=256).outdone  # it is looked at: it is wrong
    assert "wrong result" in (opened.check("far", workspace=0).refused or "")
    assert not opened.bench.check("cudnn 1", named("far"), 512).outdone
    assert opened.check("far", workspace=512).outdone


def test_a_call_may_take_two_seconds_or_a_hundred_times_as_long_as_the_reference(opened: Opened) -> None:
    opened.check("good")
    assert opened.limits == [2.0] * 3
    opened.bench._reference = 0.5
    opened.check("slow")
    assert opened.limits[3:] == [50.0] * 3


def test_what_was_right_in_another_process_is_not_run_again(opened: Opened) -> None:
    opened.check("good")
    before = opened.fake.calls.copy()
    opened.bench.accept("own slow", named("slow"), 0, 0.01)
    spent = opened.fake.calls - before
    assert not spent["cuLaunchKernel"] and spent["cuModuleGetFunction"] == 1  # its code is there
    rounds = opened.bench.time(0.01, lambda name: None)
    assert rounds["own slow"] == [0.01] and len(rounds["own good"]) > 1


def test_the_operands_of_rounds_are_whole_after_a_bad_one(opened: Opened) -> None:
    opened.check("good")
    assert opened.check("into_input").refused is not None
    first: Any = opened.bench._first.inputs[0]
    changed = opened.fake.array(first.address, "u1", first.size).copy()
    opened.bench.time(0.01, lambda name: None)
    assert (opened.fake.array(first.address, "u1", first.size) != changed).any()


@pytest.mark.parametrize(("least", "timed"), [(0.010, ["a", "b"]), (0.0001, ["a", "b", "c"])])
def test_long_calls_that_are_a_fifth_slower_are_timed_no_further(
    least: float, timed: list[str], opened: Opened
) -> None:
    for name, times in (("a", 1.0), ("b", 1.19), ("c", 1.5), ("d", 2.1)):
        opened.bench.accept(f"own {name}", named("good"), 0, times * least)
    rounds = opened.bench.time(0.01, lambda name: None)
    assert [name for name, each in rounds.items() if len(each) > 1] == [f"own {name}" for name in timed]
    assert rounds["own d"] == [2.1 * least]
