"""Small parts of a run: its folder, its signal handlers, its log."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from dslc.base.errors import ArtifactError
from dslc.runtime.train.metrics import Log, read_log
from dslc.runtime.train.rundir import choose_run
from dslc.runtime.train.signals import StopNow, StopRequest


def hold_a_run(folder: Path) -> None:
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "step-0000000001.safetensors").touch()


def test_a_folder_without_a_checkpoint_is_taken_others_are_left(tmp_path: Path) -> None:
    base = tmp_path / "runs" / "a"
    with pytest.raises(ArtifactError) as caught:
        choose_run(base, resume=True)
    assert caught.value.code == "R307"
    assert choose_run(base, resume=False) == base
    (base / "log.jsonl").touch()  # died before its first checkpoint
    assert choose_run(base, resume=False) == base
    hold_a_run(base)
    hold_a_run(base.with_name("a-7"))
    hold_a_run(base.with_name("ab-9"))
    assert choose_run(base, resume=True) == base.with_name("a-7")
    assert choose_run(base, resume=False) == base.with_name("a-8")
    assert choose_run(base, resume=True) == base.with_name("a-7")


def test_handlers_are_put_back_and_an_ignored_signal_stays_ignored() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with StopRequest() as stop:
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.exit_code == 130
            with pytest.raises(StopNow):
                os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is before[signal.SIGINT]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_line_after_a_torn_one_stands_on_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path / "log.jsonl", pytest.fail)
    log.write("step", 1, 0, {})
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, data: real(handle, data[:5]))
        log.write("step", 2, 0, {})
    log.write("step", 3, 0, {"loss": float("nan")})
    entries = list(read_log(tmp_path / "log.jsonl"))
    assert [e["step"] for e in entries] == [1, 3] and entries[1]["loss"] == "nan"
