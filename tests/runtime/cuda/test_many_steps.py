"""Several training steps with one launch: the bits of single steps, with fewer calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.gpu_model import write_gpu_line
from fake_gpu.gpu_pair import Machine, Pair, batch, equal

from dslc.base.errors import ArtifactError, DeviceLostError, DslcError, InputError
from dslc.runtime.cuda import device as devices
from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session


def stacked(count: int, first: int = 0) -> dict[str, np.ndarray]:
    each = [batch(first + i) for i in range(count)]
    return {name: np.stack([b[name] for b in each]) for name in each[0]}


@pytest.mark.parametrize("together", [1, 3, 4])
@pytest.mark.parametrize("options", [{}, {"bulk": 0}, {"contexts": 2}])
def test_they_are_single_steps(pair: Callable[..., Pair], together: int, options: dict[str, Any]) -> None:
    one = pair(options={"steps_per_launch": together, **options})
    rates = [0.01 * (i + 1) for i in range(10)]
    singly = [one.cpu.train_step(**batch(i), lr=rates[i], beta=0.25) for i in range(10)]
    late = one.gpu.train_steps(**stacked(10), lr=rates, beta=0.25)
    assert [r.step for r in late] == list(range(10)) and one.gpu.step == 10
    assert late == singly
    assert equal(*one.both(lambda s: s.train_steps({**batch(i), "lr": 0.1 * i, "row": 7 * i} for i in range(5))))
    assert equal(*one.both(lambda s: s.train_step(**batch(11))))
    assert equal(*one.both(lambda s: s.predict(x=batch(0)["x"])))
    assert equal(*one.both(lambda s: s.train_steps(**stacked(4, 20))))
    assert equal(*one.both(lambda s: s.state_tensors())) and one.gpu.step == one.cpu.step == 20


def test_a_launch_and_a_copy_each_way_for_all_of_them(pair: Callable[..., Pair]) -> None:
    one = pair(options={"steps_per_launch": 8})
    one.gpu.train_steps(**stacked(8))
    before, calls = one.gpu.counters, one.fake.calls.copy()
    results = one.gpu.train_steps(**stacked(32))
    after, made = one.gpu.counters, one.fake.calls - calls
    assert after["graph_launches"] - before["graph_launches"] == made["cuGraphLaunch"] == 4
    assert after["synchronisations"] == before["synchronisations"] and not made["cuLaunchKernel"]
    assert made["cuMemcpyHtoDAsync"] == 4 == made["cuMemcpy2DAsync"] and not made["cuMemcpyDtoDAsync"]
    assert not made["cuMemcpyDtoHAsync"] and not made["cuMemAlloc"] and not made["cuMemHostAlloc"]
    assert sum(made.values()) <= 4 * 20
    assert [r.step for r in results] == list(range(8, 40)) and results[3].loss > 0


def test_what_is_left_over_is_launched_singly(pair: Callable[..., Pair]) -> None:
    one = pair(options={"steps_per_launch": 4})
    before = one.gpu.counters["graph_launches"]
    one.both(lambda s: s.train_steps(**stacked(7)))
    assert one.gpu.counters["graph_launches"] - before == 1 + 3
    assert equal(*one.both(lambda s: s.state_tensors()))
    assert one.gpu.train_steps([]) == [] == one.gpu.train_steps(**stacked(1) | {"x": np.zeros((0, 4, 3), np.float32),
                                                                "target": np.zeros((0, 4), np.int32)})  # fmt: skip


def test_results_are_good_for_ever(pair: Callable[..., Pair]) -> None:
    one = pair(options={"steps_per_launch": 2})
    late, now = one.both(lambda s: [s.train_steps(**stacked(2, 2 * i)) for i in range(6)])
    del late[1]
    del now[1]
    one.gpu.predict(x=batch(0)["x"])
    assert late == now


def test_an_array_may_be_used_again(pair: Callable[..., Pair]) -> None:
    one = pair(options={"steps_per_launch": 3})

    def reused() -> Iterator[dict[str, Any]]:
        given = batch(0)
        for i in range(8):
            for name, array in batch(i).items():
                given[name][...] = array
            yield given

    assert equal(*one.both(lambda s: s.train_steps(reused())))
    assert equal(*one.both(lambda s: s.state_tensors()))


def test_steps_before_a_wrong_one_are_taken(pair: Callable[..., Pair]) -> None:
    one = pair(options={"steps_per_launch": 4})
    wrong = [batch(i) for i in range(8)]
    wrong[6] = {**batch(6), "lr": 1e300}

    def broken() -> Iterator[dict[str, Any]]:
        yield batch(0)
        raise ZeroDivisionError

    for error, batches in ((InputError, lambda: wrong), (ZeroDivisionError, broken)):
        for session in (one.gpu, one.cpu):
            with pytest.raises(error):
                session.train_steps(batches())
    assert one.gpu.step == one.cpu.step == 7
    assert equal(*one.both(lambda s: s.train_steps(**stacked(4))))
    assert equal(*one.both(lambda s: s.state_tensors()))


@pytest.mark.parametrize("bad", [0, 5, 9])
def test_a_value_out_of_its_range_ends_arrays_of_many_steps_where_it_stands(
    pair: Callable[..., Pair], bad: int
) -> None:
    one = pair(options={"steps_per_launch": 4})
    given = stacked(10)
    given["target"] = given["target"].copy()
    given["target"][bad, 1] = 10
    for session in (one.gpu, one.cpu):
        with pytest.raises(InputError, match="10 classes"):
            session.train_steps(**given)
        assert session.step == bad
    assert equal(*one.both(lambda s: s.state_tensors()))
    assert equal(*one.both(lambda s: s.train_steps(**stacked(6), lr=[0.1 * i for i in range(6)])))


def test_arrays_of_many_steps_may_lie_as_they_like(pair: Callable[..., Pair]) -> None:
    one = pair(options={"steps_per_launch": 4})
    given = {n: np.repeat(x, 2, 0)[::2] for n, x in stacked(8).items()}
    given["x"] = np.ascontiguousarray(given["x"].transpose(2, 0, 1)).transpose(1, 2, 0)
    assert equal(*one.both(lambda s: s.train_steps(**given)))
    assert one.gpu.step == 8


def test_wrong_arguments(pair: Callable[..., Pair]) -> None:
    one = pair(options={"steps_per_launch": 2})
    good = stacked(4)
    for given, said in (
        ({**good, "x": good["x"][:3]}, "`target` is for 4 steps, and `x` for 3"),
        ({**good, "lr": [0.1] * 5}, "`lr` is for 5 steps, and `x` for 4"),
        ({"x": good["x"]}, "`target` is missing"),
        ({**good, "y": 1}, "`y` is not an input"),
        ({**good, "x": good["x"].astype(np.float64)}, "dtype f64"),
        (batch(0), "rank 1"),
    ):
        for session in (one.gpu, one.cpu):
            with pytest.raises(InputError, match=said) as caught:
                session.train_steps(**given)
            assert caught.value.code == "R105" and caught.value.help
    for session in (one.gpu, one.cpu):
        with pytest.raises(InputError, match="expected a mapping"):
            session.train_steps([np.zeros(3)])  # type: ignore[list-item]
    for bad in (0, 1025, True, 2.0):
        with pytest.raises(InputError, match="steps_per_launch"):
            load(one.path, device="gpu", steps_per_launch=bad)  # type: ignore[arg-type]
    assert one.gpu.step == 0


def test_batches_that_call_the_session_are_refused(pair: Callable[..., Pair]) -> None:
    one = pair(options={"steps_per_launch": 2})
    for session in (one.gpu, one.cpu):
        for call in (
            lambda s: s.predict(x=batch(0)["x"]),
            lambda s: s.train_step(**batch(0)),
            lambda s: s.weights["w"],
        ):

            def circular(s: Session = session, call: Callable[[Session], Any] = call) -> Iterator[dict[str, Any]]:
                call(s)
                yield batch(0)

            with pytest.raises(InputError, match="during training steps"):
                session.train_steps(circular())
        assert session.train_steps(**stacked(2))[1].step == 1


def test_the_build_says_how_many(tmp_path: Path, machine: Machine) -> None:
    path, kernels = write_gpu_line(tmp_path, options={"steps_per_launch": 5})
    fake = machine(**kernels.driver())
    with load(path, weights="init") as session:
        session.train_steps(**stacked(10))
        assert session.counters["graph_launches"] == 2  # init has none
    path, kernels = write_gpu_line(tmp_path, options={"steps_per_launch": 1 << 40}, name="other")
    fake = machine(**kernels.driver())
    with pytest.raises(ArtifactError, match="steps_per_launch"):
        load(path, weights="init")
    assert not fake.calls["cuMemAlloc"]


@pytest.mark.parametrize("code", [999, 700])
def test_every_call_may_fail(tmp_path: Path, machine: Machine, code: int) -> None:
    """The error is ours; the session goes on with the right numbers, or says why it cannot."""
    path, kernels = write_gpu_line(tmp_path, ptx=False)

    def run(session: Session) -> Any:
        return [(r.loss, r.metrics) for r in session.train_steps(**stacked(5))]

    def start() -> tuple[FakeDriver, Session]:
        fake = machine(**kernels.driver())
        return fake, load(path, weights="init", steps_per_launch=2)

    fake, session = start()
    before = len(fake.log)
    expected = run(session)
    count = len(fake.log) - before
    session.close()
    for number in range(1, count + 1):
        fake, session = start()
        fake.fail_at, fake.fail_with = len(fake.log) + number, code
        with pytest.raises(DslcError):
            run(session)
        assert fake.fired == 1
        fake.fail_at = None
        if code == 700:
            with pytest.raises(DeviceLostError):
                run(session)
            continue
        session.initialise()
        assert equal(run(session), expected), fake.log[-1]
        session.close()
        assert devices.device(0).info().memory.used == 0
        devices.device(0).close()
        assert fake.leaks() == {}
