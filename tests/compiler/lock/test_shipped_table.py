"""The script that makes a shipped table of locks: what it keeps of each, and that a lock of `dslc tune` will do."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from locks import block, way
from places import ROOT

from dslc.compiler.ir.choice import Choice, Measured
from dslc.compiler.lock import table
from dslc.compiler.lock.find import read_lock, write_lock
from dslc.compiler.lock.model import Block, Lock
from dslc.tune.settings import UNTRIED

OTHER = Measured(Choice("own", "rows=4 threads=128"), 1e-6)
DEFAULT = way(2e-6)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., set[str]]:
    """Runs the script on locks with these blocks; the keys that the table then holds."""

    def made(*locks: tuple[Block, ...], words: tuple[str, ...] = ()) -> set[str]:
        paths = []
        for number, blocks in enumerate(locks):
            paths.append(tmp_path / f"{number}.lock")
            write_lock(paths[-1], Lock.of(blocks))
        monkeypatch.setattr(table, "FOLDER", tmp_path)
        monkeypatch.setattr(sys, "argv", ["shipped_table.py", "made", *map(str, paths), *words])
        runpy.run_path(str(ROOT / "benchmarks/shipped_table.py"), run_name="__main__")
        return {each.key for each in read_lock(tmp_path / "made.lock").blocks}

    return made


def won(key: str, *rejected: str) -> Block:
    return replace(block(key, ways=(OTHER, DEFAULT)), default=DEFAULT, rejected=rejected)


def test_a_table_keeps_what_another_own_kernel_won(make: Callable[..., set[str]]) -> None:
    lost = replace(block("lost", ways=(DEFAULT,)), default=DEFAULT)
    short = won("short of time", f"3 ways {UNTRIED}", "own split=1: wrong result (error 0.5, on average 0.1)")
    assert make((won("a"), lost), (won("b"), short)) == {"a", "b", "short of time"}
    assert make((won("c"), replace(lost, key="a"))) == {"b", "c", "short of time"}  # the default wins now
    assert make((won("d"),), words=("--new",)) == {"d"}


def test_a_table_is_of_one_gpu(make: Callable[..., set[str]], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        make((won("a"), replace(won("b"), gpu="NVIDIA A100, 108 SMs, sm_80")))
    assert ended.value.code == 2 and "a table is of one GPU, but these are of 2" in capsys.readouterr().err
