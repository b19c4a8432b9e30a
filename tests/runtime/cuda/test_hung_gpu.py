"""A GPU that does not finish is told in the time that was set, with the program it hangs in; nothing waits for ever.

The fake driver fails the test wherever a call would wait for work that never ends.
"""

from __future__ import annotations

import gc
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifacts import line_model
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.gpu_model import write_gpu_line

from dslc.base.errors import DeviceLostError, InputError
from dslc.runtime.cuda.device import Device
from dslc.runtime.cuda.waiting import patience
from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session

Machine = Callable[..., FakeDriver]


def batch(step: int, rows: int = line_model.BATCH) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    return {"x": rng.standard_normal((rows, line_model.FEATURES)).astype(np.float32),
            "target": rng.integers(0, 10, rows).astype(np.int32)}  # fmt: skip


CALLS: dict[str, tuple[Callable[[Session], Any], str]] = {
    "read a step": (lambda s: s.train_step(**batch(0)).loss, "train_step@B=4"),
    "three steps": (lambda s: [s.train_step(**batch(i)) for i in range(3)], "train_step@B=4"),
    "predict": (lambda s: s.predict(x=batch(0)["x"]), "predict@B=4"),
    "evaluate": (lambda s: s.evaluate(**batch(0)), "eval_step@B=4"),
    "state after a step": (lambda s: (s.train_step(**batch(0)), s.state_tensors()), "cuEventSynchronize"),
    "weights after a step": (lambda s: (s.train_step(**batch(0)), s.weights["w"]), "cuEventSynchronize"),
}


@pytest.mark.parametrize("bulk", [None, 0])
@pytest.mark.parametrize("name", list(CALLS))
def test_a_hung_gpu_is_told_in_time(tmp_path: Path, machine: Machine, name: str, bulk: int | None) -> None:
    call, place = CALLS[name]
    path, kernels = write_gpu_line(tmp_path)
    fake = machine(**kernels.driver())
    fake.patience = 0.05
    session = load(path, weights="init", bulk=bulk)
    call(session)  # and while it does not hang, it works
    fake.hung = True
    begun = time.monotonic()
    with pytest.raises(DeviceLostError) as caught:
        call(session)
    assert 0.05 <= time.monotonic() - begun < 60
    error = caught.value
    assert error.code == "R208" and error.exit_code == 4 and "not finished after 0.05 s" in error.message
    if bulk is None:
        assert place in str(error.place)
    else:  # launched one by one, the node is known
        assert "linear.nn:" in str(error.place)
    made = len(fake.log)
    with pytest.raises(DeviceLostError, match="not finished after"):
        session.predict(x=batch(1)["x"])
    session.close()
    assert len(fake.log) == made, "a GPU that hangs is left alone"


def test_closing_and_forgetting_a_session_that_hangs(tmp_path: Path, machine: Machine) -> None:
    path, kernels = write_gpu_line(tmp_path)
    fake = machine(**kernels.driver())
    fake.patience = 0.05
    session, forgotten = (load(path, weights="init") for _ in range(2))
    for one in (session, forgotten):
        one.train_step(**batch(0))
    fake.hung = True
    held = fake.leaks()
    session.close()
    del forgotten
    gc.collect()
    with pytest.raises(DeviceLostError):
        load(path, weights="init")
    assert fake.leaks() == held, "what a kernel may still write is not let go of"


def test_callers_of_other_threads_are_told_too(tmp_path: Path, machine: Machine) -> None:
    path, kernels = write_gpu_line(tmp_path)
    fake = machine(**kernels.driver())
    fake.patience = 0.2
    session = load(path, weights="init", contexts=2)
    fake.hung = True
    said: list[str] = []

    def work() -> None:
        with pytest.raises(DeviceLostError) as caught:
            session.predict(x=batch(0)["x"])
        said.append(caught.value.code)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(said) == 5 and "R208" in said and set(said) <= {"R207", "R208"}


def test_a_wait_for_work_that_ends_sleeps_and_is_over_with_it(gpu: tuple[FakeDriver, Device]) -> None:
    fake, device = gpu
    with device:
        event, stream = device.driver.event([]), device.driver.stream([])
        device.driver.record(event, stream)
        fake.hung = True
        timer = threading.Timer(0.1, lambda: setattr(fake, "hung", False))
        begun = time.monotonic()
        timer.start()
        device.driver.wait_host(event)
        assert 0.1 <= time.monotonic() - begun < 60
        timer.join()
        assert fake.calls["cuEventQuery"] < 20_000 and not fake.calls["cuEventSynchronize"]
        device.driver.patience = math.inf
        device.driver.synchronise(stream)
        assert fake.calls["cuStreamSynchronize"] == 1


def test_how_long_is_asked_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, seconds in (("", 600.0), ("5", 5.0), ("off", math.inf)):
        monkeypatch.setenv("DSLC_GPU_TIMEOUT", text)
        assert patience() == seconds
    for text in ("0", "-1", "1.5", "never", "99999999", "٣"):
        monkeypatch.setenv("DSLC_GPU_TIMEOUT", text)
        with pytest.raises(InputError, match="DSLC_GPU_TIMEOUT"):
            patience()
