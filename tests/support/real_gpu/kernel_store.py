"""Compiled kernels and what they shall compute, in one folder, for a machine that cannot compile.

``index.json`` says what ``data.bin``, which is compressed, holds: cubins by symbol, and cases. A case is a list of
buffers (bytes before, and for outputs the values after) and launches over them. ``waiting``: the kernels that wait by
themselves for the one before.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from places import ROOT

if TYPE_CHECKING:
    from dslc.compiler.codegen.launch import Launch

_PACK = {"i32": "<i", "i64": "<q", "f32": "<f", "f64": "<d"}
STORE = ROOT / ".gpu"


class Writer:
    """Collects cases; ``finish`` compiles their kernels, as many at a time as there are processors, and writes."""

    def __init__(self, architecture: str) -> None:
        self.architecture = architecture
        self.data = bytearray()
        self.cases: list[dict[str, Any]] = []
        self.kernels: dict[str, Any] = {}

    def put(self, data: bytes) -> tuple[int, int]:
        self.data += bytes(-len(self.data) % 8)
        self.data += data
        return len(self.data) - len(data), len(data)

    def array(self, x: np.ndarray) -> dict[str, Any]:
        return {"dtype": x.dtype.str, "shape": list(x.shape), "at": self.put(np.ascontiguousarray(x).tobytes())}

    def launches(self, launches: Sequence[Launch], places: Mapping[Any, int]) -> list[dict[str, Any]]:
        """Launches over buffers by their places; their kernels are remembered."""
        from dslc.compiler.codegen.targets import target_of

        found, target = [], target_of(self.architecture)
        for launch in launches:
            self.kernels[launch.symbol] = launch.code
            geometry = target.geometry(launch.spec)
            found.append(
                {
                    "symbol": launch.symbol,
                    "grid": geometry.grid,
                    "block": geometry.block,
                    "shared": geometry.shared_bytes,
                    "arguments": [places[v] for v in (*launch.reads, *launch.writes)],
                    "given": [int.from_bytes(struct.pack(_PACK[kind], v), "little") for kind, v in launch.scalar_args],
                }
            )
        return found

    def finish(self, folder: Path, cubins: Mapping[str, bytes] | None = None, **header: Any) -> None:
        """``cubins``: more of them, by their symbols."""
        from dslc.base.cache import Cache
        from dslc.compiler.toolchain.bundle import unbundle
        from dslc.compiler.toolchain.jobs import Job
        from dslc.compiler.toolchain.kernel_compiler import KernelCompiler

        jobs = [Job("cuda_kernel", s, spec, (self.architecture,)) for s, spec in self.kernels.items()]
        codes = [unbundle(code) for code in KernelCompiler(Cache.open()).compile(jobs)]
        kernels = {job.symbol: self.put(code["cubin"]) for job, code in zip(jobs, codes, strict=True)}
        waiting = [job.symbol for job, code in zip(jobs, codes, strict=True) if b"griddepcontrol.wait;" in code["ptx"]]
        kernels |= {symbol: self.put(cubin) for symbol, cubin in (cubins or {}).items()}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "data.bin").write_bytes(zlib.compress(self.data))
        index = {
            **header,
            "architecture": self.architecture,
            "kernels": kernels,
            "waiting": waiting,
            "cases": self.cases,
        }
        (folder / "index.json").write_text(json.dumps(index), encoding="utf-8")


def arguments(launch: Mapping[str, Any], addresses: Sequence[int]) -> list[int]:
    """What a launch of a case is called with, 64 bits each: buffers by their places, then its numbers."""
    return [*(addresses[a] for a in launch["arguments"]), *launch["given"]]


class Reader:
    """A folder that ``Writer`` wrote."""

    def __init__(self, folder: Path) -> None:
        self.index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        self.data = zlib.decompress((folder / "data.bin").read_bytes())

    def get(self, place: tuple[int, int]) -> bytes:
        return self.data[place[0] : place[0] + place[1]]

    def array(self, described: Mapping[str, Any]) -> np.ndarray:
        return np.frombuffer(self.get(described["at"]), np.dtype(described["dtype"])).reshape(described["shape"])

    def cubin(self, symbol: str) -> bytes:
        return self.get(self.index["kernels"][symbol])
