"""What the worker answers to each request; worker.py lists the requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from dslc.base.errors import DslcError, OutOfMemory
from dslc.runtime.artifact.instructions import Gemm, GraphOp
from dslc.runtime.artifact.targets import capability_of
from dslc.runtime.cuda import device as devices
from dslc.runtime.cuda.libraries.libraries import Libraries
from dslc.runtime.cuda.modules import Modules
from dslc.runtime.cuda.owned import Owned
from dslc.tune.bench import Bench, Refusal
from dslc.tune.candidate import Candidate, read_candidate
from dslc.tune.loaded import Machine

_ALIGNED: Final = 4096  # the address for which libraries are asked: operands lie at multiples of 512
_MOST: Final = 1e30  # of an error: JSON has no infinity
_WORKSPACES: Final = 4  # workspaces that fit into the free memory, if a way may need any


class Worker:
    """Answers requests. ``say``: writes a line."""

    def __init__(self, say: Any) -> None:
        self._say = say
        self._bench: Bench | None = None
        self._name = ""  # of the candidate that is checked
        self._device: Any = None
        self._comparers: dict[str, _Comparers] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request."""
        do = request.pop("do")
        try:
            return dict(getattr(self, f"do_{do}")(**request))
        except Refusal as refusal:
            return {"refused": str(refusal)}
        except DslcError as error:
            lost = self._device is not None and self._device.driver.lost is not None
            if self._device is None:
                return {"failed": [error.code, error.message]}
            why = "does not fit into the GPU's memory" if isinstance(error, OutOfMemory) else error.message
            return {"refused": why, "lost": lost}

    def do_hello(self, gpu: int) -> dict[str, Any]:
        device = devices.device(gpu)
        with device:
            self._owned = Owned(device)
            self._stream = device.driver.stream(self._owned.noted)
            self._libraries = Libraries(device, self._owned)
        self._device = device
        return {
            "name": device.name,
            "sms": device.multiprocessors,
            "target": device.target,
            "driver": device.driver.version(),
            "bus": device.bus_id,
        }

    def do_open(self, path: str, comparer: str, target: str, through_ptx: bool, deterministic: bool) -> dict[str, Any]:
        self.do_close()
        with self._device:
            if comparer not in self._comparers:
                self._comparers[comparer] = _Comparers(self._device, self._owned, comparer, target, through_ptx)
            compare = self._comparers[comparer].function
            machine = Machine(self._device, self._stream, self._libraries, target, through_ptx)
            self._bench = Bench(machine, compare, _read(path), deterministic, self._runs)
        return {}

    def do_algorithms(self, path: str, limit: int | None, deterministic: bool) -> dict[str, Any]:
        plan = _read(path).plan
        [call] = plan.instructions
        assert isinstance(call, Gemm | GraphOp), "a library computes it"
        with self._device as device:
            most = device.pool.available() // _WORKSPACES if limit is None else limit
            asked = (call, plan.buffers, lambda index: _ALIGNED)
            ways = self._libraries.candidates(*asked, most, deterministic)
            default = self._libraries.default(*asked)
        return {"default": default, "ways": ways, "version": self._libraries.versions[call.provider]}

    def _runs(self, seconds: float) -> None:
        self._say({"at": self._name, "patience": seconds})

    def do_check(self, name: str, path: str, workspace: int) -> dict[str, Any]:
        assert self._bench is not None, "no problem is open"
        self._name = name
        with self._device:
            found = self._bench.check(name, _read(path), workspace)
        error = min(found.error, _MOST)
        return {"error": error, "refused": found.refused, "seconds": found.seconds, "outdone": found.outdone}

    def do_accept(self, name: str, path: str, workspace: int, seconds: float) -> dict[str, Any]:
        assert self._bench is not None, "no problem is open"
        with self._device:
            self._bench.accept(name, _read(path), workspace, seconds)
        return {}

    def do_time(self, seconds: float) -> dict[str, Any]:
        assert self._bench is not None, "no problem is open"
        with self._device:
            return {"rounds": self._bench.time(seconds, lambda name: self._say({"at": name}))}

    def do_close(self) -> dict[str, Any]:
        if self._bench is not None:
            with self._device:
                self._bench.close()
            self._bench = None
        return {}


class _Comparers:
    """The comparing kernels by dtype, from a container whose blobs are named ``SYMBOL.cubin``, and whose plan names
    the dtype of each."""

    def __init__(self, device: Any, owned: Owned, path: str, target: str, through_ptx: bool) -> None:
        candidate = _read(path)
        capability = capability_of(target)
        assert capability is not None, f"{target} is a GPU"
        self._modules = Modules(device, candidate.code, capability, through_ptx)
        owned.on_close(self._modules.close)
        self._kernels = {candidate.plan.names[i.where]: i for i in candidate.plan.instructions}  # type: ignore[union-attr]

    def function(self, dtype: str) -> tuple[Any, int, int]:
        kernel: Any = self._kernels["u8" if dtype == "b1" else dtype]
        function = self._modules.function(kernel.blob, kernel.symbol, kernel.block, 0, [8] * 6, "comparison")
        return function, kernel.grid[0], kernel.block[0]


def _read(path: str) -> Candidate:
    return read_candidate(Path(path).read_bytes(), path)
