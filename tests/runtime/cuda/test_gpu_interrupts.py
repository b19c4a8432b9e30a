"""Ctrl-C at any point of the runtime on a GPU: nobody waits for ever, no session is broken, bits stay."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.foreign_arrays import ByDlpack
from fake_gpu.gpu_model import write_gpu_line
from fake_gpu.gpu_pair import Machine, batch
from interruption.interrupts import World, count, elsewhere, settle, spread, strike

from dslc.runtime.cuda import device as devices
from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session

pytestmark = pytest.mark.slow

KINDS: dict[str, dict[str, Any]] = {
    "bulks": {"made": {"bulks": True}, "options": {}},
    "singly": {"made": {}, "options": {"bulk": 0}},
    "many steps": {"made": {"bulks": True}, "options": {"steps_per_launch": 2, "contexts": 2}},
}


def opened(folder: Path, machine: Machine, kind: str) -> tuple[Callable[[], Session], FakeDriver]:
    path, kernels = write_gpu_line(folder, **KINDS[kind]["made"])
    fake = machine(**kernels.driver())
    return (lambda: load(path, device="gpu", weights="init", seed=7, **KINDS[kind]["options"])), fake


def calls(session: Session, folder: Path) -> dict[str, Callable[[], Any]]:
    weights, step, state = folder / "w.safetensors", folder / "step.safetensors", session.state_tensors()
    session.weights.save(weights)
    session.save_checkpoint(step)
    return {
        "predict": lambda: session.predict(x=batch(1, 7)["x"]),
        "train_step": lambda: session.train_step(**batch(1)).loss,
        "train_steps": lambda: [r.loss for r in session.train_steps([batch(1), batch(2)])],
        "evaluate": lambda: session.evaluate(**batch(3, 9)),
        "weights.save": lambda: session.weights.save(folder / "new.safetensors"),
        "weights.load": lambda: session.weights.load(weights),
        "weights[name]": lambda: session.weights.__setitem__("b", session.weights["b"] + 1),
        "save_checkpoint": lambda: session.save_checkpoint(folder / "new.safetensors"),
        "load_checkpoint": lambda: session.load_checkpoint(step),
        "restore": lambda: session.restore({name: value + 1 for name, value in state.items()}, 9),
        "initialise": lambda: session.initialise(3),
        "find_nonfinite": lambda: session.find_nonfinite(**batch(4)),
    }


@pytest.mark.parametrize("opcodes", [False, True], ids=["lines", "opcodes"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_at_any_point_of_a_call(kind: str, opcodes: bool, tmp_path: Path, machine: Machine) -> None:
    make, fake = opened(tmp_path, machine, kind)
    session = make()
    session.train_step(**batch(0))

    def held() -> object:
        devices.device(0).mend()
        return len(os.listdir("/proc/self/fd")), fake.leaks(), len(session._pool._turns.holders), len(fake._stack)

    world = World(session, {"x": batch(5)["x"]}, held)
    found = {}
    for name, call in calls(session, tmp_path).items():
        halfway = (lambda: session.train_step(**batch(1))) if name == "train_steps" else None
        found[name] = world.sweep(call, spread(8 if opcodes else 20), opcodes=opcodes, halfway=halfway)
    print(f"{world.struck} interrupts, {world.torn} torn, of {found}")
    assert not world.broken, "\n".join(world.broken)
    assert world.struck >= 90 and world.torn < world.struck // 2
    session.close()
    devices.device(0).close()
    assert fake.leaks() == {}


@pytest.mark.parametrize("kind", KINDS)
def test_results_that_were_not_read_before_an_interrupt_stay(kind: str, tmp_path: Path, machine: Machine) -> None:
    make, _ = opened(tmp_path, machine, kind)
    with make() as session:
        start = session.state_tensors()
        expected = [session.train_step(**batch(i)).loss for i in range(3)]
        points = count(lambda: session.train_step(**batch(3)))
        assert points >= 150
        for number in spread(30)(points):
            session.restore(start, 0)
            late = [session.train_step(**batch(i)) for i in range(3)]
            strike(lambda: session.train_step(**batch(3)), number)
            if session._state.torn:
                session.restore(start, 0)
            for i in range(4):
                session.predict(x=batch(i)["x"])
            assert [one.loss for one in late] == expected, number


@pytest.mark.parametrize("opcodes", [False, True], ids=["lines", "opcodes"])
def test_a_check_after_an_interrupted_one_tells_the_truth(opcodes: bool, tmp_path: Path, machine: Machine) -> None:
    make, fake = opened(tmp_path, machine, "bulks")
    bad = ByDlpack(np.full(4, 10, np.int32), "i32")
    good = ByDlpack(np.arange(4, dtype=np.int32), "i32")
    session = make()
    adopted = dict(session._backend.adopt("train_step", {"bad": bad, "good": good}))
    look: Any = session._backend.may_be_outside
    wrong, right = ([(adopted[name], (0, 10))] for name in ("bad", "good"))
    assert look(wrong) and not look(right)
    points = count(lambda: look(wrong), opcodes=opcodes)
    for number in spread(60)(points):
        found = strike(lambda: look(wrong), number, opcodes=opcodes)
        assert elsewhere(lambda: look(right)) is False, found.struck
        assert elsewhere(lambda: look(wrong)) is True, found.struck
        found.error = None
        devices.device(0).mend()
        assert not fake._stack
    strike(lambda: look(wrong), points // 2, opcodes=opcodes)
    elsewhere(session.close)
    for held in (adopted, wrong, right):
        held.clear()
    bad.free()
    good.free()
    gc.collect()
    devices.device(0).close()
    assert fake.leaks() == {}


@pytest.mark.parametrize("opcodes", [False, True], ids=["lines", "opcodes"])
@pytest.mark.parametrize("name", ["load", "close", "first load"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_of_load_or_close_leaves_nothing(
    kind: str, name: str, opcodes: bool, tmp_path: Path, machine: Machine
) -> None:
    make, fake = opened(tmp_path, machine, kind)

    def predicted() -> list[bytes]:
        with make() as session:
            return [np.asarray(x).tobytes() for x in session.predict(x=batch(1)["x"])]

    def held() -> object:
        devices.device(0).mend()
        gc.collect()  # sessions that nobody has any more
        pool, leaks = devices.device(0).info().memory, fake.leaks()
        leaks.pop("device memory")  # more is cached when a session is let go of later; but the pool knows all of it
        return pool.used, pool.blocks, fake.used - pool.used - pool.cached, leaks, len(fake._stack), fake.retained

    expected = predicted()
    settle()
    before = held()
    points = count(make if name == "load" else make().close, opcodes=opcodes)
    assert points >= (300 if opcodes else 60), f"only {points} points: the sweep has missed the call"
    leaks = []
    for number in spread(20 if opcodes else 50)(points):
        if name == "first load":
            devices.device(0).close()
            assert fake.leaks() == {} and not fake.retained
            devices._machine.__init__()  # type: ignore[misc]
        session = make() if name == "close" else None
        found = strike(make if session is None else session.close, number, opcodes=opcodes)
        if session is not None:
            elsewhere(session.close)
        assert elsewhere(predicted) == expected, found.struck
        session = found.error = None
        if held() != before:
            leaks.append(f"{found.struck}: {held()}, not {before}")
            before = held()
    assert not leaks, "\n".join(leaks)
