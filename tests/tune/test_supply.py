"""The candidates of a problem are ready as soon as its own kernels are compiled, in the order of the problems."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from dslc.base.cache import Cache
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.compiler.toolchain.bundle import bundle
from dslc.compiler.toolchain.jobs import Job
from dslc.compiler.toolchain.kernel_compiler import KernelCompiler
from dslc.tune.problems import problems
from dslc.tune.supply import Supply


def test_the_first_problem_does_not_wait_for_the_kernels_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "two.nn"
    path.write_text(
        "nn 1\nmodel Two(x: [32, 256]) -> [32, 64] {\n  return x |> linear(512) |> softmax |> linear(64)\n}\n"
    )
    found = problems(check_file(path), Options(target="sm_90"), "sm_90")
    go = threading.Event()
    order: list[str] = []

    def compile(self: KernelCompiler, jobs: Sequence[Job]) -> list[bytes]:
        code = bundle({"cubin": b"c", "ptx": b"p"})
        for job in jobs:
            assert job.symbol in first or go.wait(60)
            order.append(job.symbol)
            assert self._found is not None
            self._found(job, code)
        return [code] * len(jobs)

    supply = Supply(found, "sm_90", Cache(None), tmp_path, variants=True)
    first = {symbol for _, made in supply._recipes(found[0]) for symbol in made.kernels}
    monkeypatch.setattr(KernelCompiler, "compile", compile)
    with supply:
        ready = supply.get(found[0], 60)
        assert ready is not None and ready.own and {*order} == first
        with pytest.raises(TimeoutError):
            supply.get(found[1], 0.2)
        go.set()
        for problem in found[1:]:
            assert supply.get(problem, 60) is not None
