"""Our process of a sweep: runs the files that ``build.py`` makes, on the CPU or on a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from dslc.runtime.artifact.instructions import Kernel, Reference
from dslc.runtime.session.host_memory import block
from op_sweep import data
from op_sweep.build import Made, read
from op_sweep.worker import Opened, sampled, serve, timed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from op_sweep.case import Run

SCALARS = {"step": 0, "row": 0, "seed": 0}


def filled(run: Run, made: Made) -> dict[str, NDArray[Any]]:
    """The numbers that fill each input of a plan, in the dtypes of its buffers; larger inputs repeat them."""
    buffers = {port.name: made.plan.buffers[port.buffer] for port in made.plan.inputs}
    seeds = [name for name in buffers if name not in run.case.inputs]
    count = max((1 + int(name.removeprefix("seed")) for name in seeds), default=0)
    shapes = [tuple(buffers[f"seed{i}"].shape) if f"seed{i}" in buffers else (1,) for i in range(count)]
    found = {name: x for name, _, x in data.periods(run, shapes)}
    return {
        name: data.stored(found[name], buffer.dtype) if found[name].dtype == np.float32 else found[name]
        for name, buffer in buffers.items()
    }


class OnHost:
    """A case on the CPU, in memory of its own."""

    def __init__(self, run: Run, path: str) -> None:
        from dslc.runtime.cpu.executor import BoundPlan
        from dslc.runtime.cpu.objects import load_objects

        made = read(Path(path))
        self.about: dict[str, Any] = {**made.header}
        instructions = made.plan.instructions
        meanings = None
        if any(isinstance(each, Reference) for each in instructions):
            from dslc.compiler.ops.registry import meanings as all_meanings

            meanings = all_meanings()
        symbols = {each.symbol for each in instructions if isinstance(each, Kernel)}
        code = {name: memoryview(blob) for name, blob in made.blobs.items() if name.startswith("code.")}
        regions = {"state": block(0), "io": block(made.header["io"]), "work": block(made.header["work"])}
        self._bound = BoundPlan(
            made.plan, regions, meanings, made.blobs.__getitem__, name=run.name,
            objects=load_objects(code, symbols) if symbols else None,
        )  # fmt: skip
        self._bound.begin()
        self._bound.set_scalars(SCALARS)
        for name, x in filled(run, made).items():
            view = self._bound.inputs[name]
            np.copyto(view, np.resize(x, view.shape), casting="no")
        self._bound.load_constants()
        self._dtypes = [made.plan.buffers[port.buffer].dtype for port in made.plan.outputs]

    def results(self) -> list[NDArray[Any]]:
        found = {name: x for name, _, x in self._bound.run()}
        return [data.shown(sampled(x), dtype) for x, dtype in zip(found.values(), self._dtypes)]

    def times(self, seconds: float) -> list[float]:
        return timed(self._bound.run, seconds)

    def close(self) -> None:
        del self._bound


def start(device: str) -> Callable[[Run, str], Opened]:
    if device == "cpu":
        return OnHost
    from op_sweep.ours_gpu import Gpu

    return Gpu().open


if __name__ == "__main__":
    serve(start)
