"""PyTorch's process of a sweep: the op as a user calls it, without a compiler; on a GPU captured in a CUDA graph.
Needs torch and numpy, and nothing of ours.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from op_sweep import data
from op_sweep.case import GRADIENT
from op_sweep.gpu_sets import sets_for
from op_sweep.worker import Opened, serve, step_of, timed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from op_sweep.case import Run

_DTYPES: Final = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
_ROUNDS: Final = 200
_WARM: Final = 3  # calls before a capture
_FLUSHED: Final = 128 << 20  # bytes that are written to empty the cache: over twice as large as any


class Called:
    """A case: inputs, and the call with its gradients."""

    def __init__(self, run: Run, device: str) -> None:
        self.run, self.device = run, device
        self.inputs = [self._tensor(shape, x) for _, shape, x in data.periods(run, [])]
        self._with_gradients = run.direction == GRADIENT
        names = list(run.case.inputs)
        self._wrt = [names.index(name) for name in run.case.inputs if name in run.case.wrt]
        self._seeds: list[Any] = []
        if self._with_gradients:
            shapes = [tuple(y.shape) for y in self._results(self.inputs) if y.is_floating_point()]
            self._seeds = [self._tensor(shape, x) for _, shape, x in data.periods(run, shapes)[len(names) :]]

    def _tensor(self, shape: tuple[int, ...], x: NDArray[Any]) -> Any:
        """The numbers repeated on the device."""
        found = torch.from_numpy(x)
        dtype = _DTYPES[self.run.dtype] if x.dtype.kind == "f" else found.dtype
        is_index = x.dtype.name == "int32" and not self.run.case.function.startswith(("bitwise", "cast", "sort"))
        found = found.to(self.device, torch.int64 if is_index else dtype)
        count = prod(shape)
        return found.repeat(-(-count // max(1, x.size)))[:count].reshape(shape).clone()

    def _results(self, inputs: list[Any], call: Callable[..., Any] | None = None) -> list[Any]:
        y = (call or self.run.case.theirs)(torch, *inputs)
        return list(y) if isinstance(y, tuple | list) else [y]

    def __call__(self, inputs: list[Any] | None = None) -> list[Any]:
        return self._called(self.inputs if inputs is None else inputs, self._seeds)

    def exactly(self) -> list[Any]:
        """The results in f64 of the same numbers, or in the run's dtype if PyTorch has no f64 there."""
        inputs, seeds = ([_wide(x) for x in each] for each in (self.inputs, self._seeds))
        try:
            return self._called(inputs, seeds, self.run.case.exact)
        except RuntimeError:
            return self._called(self.inputs, self._seeds, self.run.case.exact)

    def _called(self, inputs: list[Any], seeds: list[Any], call: Callable[..., Any] | None = None) -> list[Any]:
        if not self._with_gradients:
            with torch.no_grad():
                return self._results(inputs, call)
        leaves = [x.detach().requires_grad_(i in self._wrt) for i, x in enumerate(inputs)]
        results = self._results(leaves, call)
        floats = [y for y in results if y.is_floating_point()]
        return [*results, *torch.autograd.grad(floats, [leaves[i] for i in self._wrt], seeds)]


def _wide(x: Any) -> Any:
    return x.double() if x.is_floating_point() else x


def _shown(x: Any) -> NDArray[Any]:
    some = x.detach().reshape(-1)[:: step_of(x.numel())]
    return (some.double() if x.is_floating_point() else some.to(torch.int64)).cpu().numpy()


class OnHost:
    """A case on the CPU."""

    about: dict[str, Any] = {}

    def __init__(self, run: Run, path: str) -> None:
        self._call = Called(run, "cpu")

    def results(self) -> list[NDArray[Any]]:
        return [_shown(x) for x in self._call.exactly()]

    def times(self, seconds: float) -> list[float]:
        return timed(self._call, seconds)

    def close(self) -> None:
        del self._call


class OnDevice:
    """A case on the GPU. An op that cannot be captured is called as it is; the row says so."""

    _scratch: Any = None

    def __init__(self, run: Run, path: str) -> None:
        if OnDevice._scratch is None:
            OnDevice._scratch = torch.empty(_FLUSHED, dtype=torch.uint8, device="cuda")
        self._call = Called(run, "cuda")
        bytes_ = sum(x.numel() * x.element_size() for x in (*self._call.inputs, *self._call()))
        self._sets = [self._call.inputs]
        for _ in range(sets_for(bytes_) - 1):
            self._sets.append([x.clone() for x in self._call.inputs])
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self._graph: Any = None
        self._kept: list[Any] = []
        self.about = {}
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM):
                self._call()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                for each in self._sets:
                    self._kept.append(self._call(each))
            self._graph = graph
        except RuntimeError:
            torch.cuda.synchronize()
            self.about = {"eager": True}

    def results(self) -> list[NDArray[Any]]:
        return [_shown(x) for x in self._call.exactly()]

    def times(self, seconds: float) -> list[float]:
        begin, end = self._events
        found: list[float] = []
        until = time.monotonic() + seconds
        while len(found) < 3 or (time.monotonic() < until and len(found) < _ROUNDS):
            OnDevice._scratch.fill_(len(found) % 251)
            begin.record()
            if self._graph is not None:
                self._graph.replay()
            else:
                for each in self._sets:
                    self._call(each)
            end.record()
            torch.cuda.synchronize()
            found.append(begin.elapsed_time(end) / 1000 / len(self._sets))
        return found

    def close(self) -> None:
        del self._call, self._graph, self._kept, self._sets
        torch.cuda.empty_cache()


def start(device: str) -> Callable[[Run, str], Opened]:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "0")) or torch.get_num_threads())
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return OnHost if device == "cpu" else OnDevice


if __name__ == "__main__":
    serve(start)
