"""Ctrl-C while the host waits for a GPU: what the work in flight uses is let go of only after the work has ended."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.gpu_model import write_gpu_line
from fake_gpu.gpu_pair import batch

from dslc.runtime.cuda import device as devices
from dslc.runtime.cuda.libraries.checked_calls import CheckedCalls
from dslc.runtime.session.load import load


def use(path: Path) -> None:
    with load(path, device="gpu", weights="init", seed=7) as session:
        session.predict(x=batch(1, 7)["x"])
        session.train_step(**batch(2))
        session.evaluate(**batch(3, 9))
        session.state_tensors()


def test_each_wait_of_a_session(tmp_path: Path, machine: Callable[..., FakeDriver]) -> None:
    """The fake driver refuses to destroy a stream with work in it, which a GPU would go on with."""
    path, kernels = write_gpu_line(tmp_path)
    fake = machine(**kernels.driver())
    real, struck = CheckedCalls._await, 0
    for number in range(1, 1000):
        left = number

        def wait(self: CheckedCalls, *args: Any) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            real(self, *args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CheckedCalls, "_await", wait)
            try:
                use(path)
            except KeyboardInterrupt:
                struck += 1
        if left > 0:
            break
    assert struck >= 5
    gc.collect()  # sessions whose close was struck
    devices.device(0).mend()
    devices.device(0).close()
    assert fake.leaks() == {}
