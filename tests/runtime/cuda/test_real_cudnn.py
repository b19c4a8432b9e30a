"""What we tell cuDNN's own package, where it is installed; no GPU is needed. Plans are made for an H200.

Elsewhere ``fake_libraries.py`` stands for it: this holds the fake to the real one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from dslc.base.errors import EnvironmentFault
from dslc.runtime.cuda.libraries import cudnn as ours
from dslc.runtime.cuda.libraries.cudnn import Convolution, Problem

H200 = {
    "deviceVer": 900, "multiProcessorCount": 132, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536,
    "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "regsPerBlock": 65536,
    "totalGlobalMem": 150109880320, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "l2CacheSize": 62914560,
    "maxBlockSize": [1024, 1024, 64], "maxGridSize": [2147483647, 65535, 65535], "supportCoopLaunch": 1,
    "pciDeviceId": 0, "isTccDriver": 0, "cudaDeviceId": 0, "driverVer": 13000, "deviceName": "NVIDIA H200",
}  # fmt: skip
IMAGE, WINDOW = (256, 56, 56, 64), (64, 3, 3, 64)
AROUND = ((1, 1), (1, 1), (1, 1), -1, (), 32 << 20)


class Library:
    """cuDNN without a GPU: descriptions and plans, nothing runs."""

    def __init__(self) -> None:
        try:
            self.module = ours.load_cudnn()
        except EnvironmentFault as error:
            pytest.skip(error.message)
        self.device = self.module.create_device_properties(json.dumps(H200))

    def graph(self, **options: Any) -> Any:
        return self.module.pygraph(device_property=self.device, **options)

    def read(self, graph: Any, plan: bytes) -> None:
        graph.deserialize(list(plan))


@pytest.mark.parametrize(
    "problem",
    [
        Problem("conv", (IMAGE, WINDOW), IMAGE, "bf16", True, *AROUND),
        Problem("conv_dgrad", (IMAGE, WINDOW), IMAGE, "bf16", True, *AROUND),
        Problem("conv_wgrad", (IMAGE, IMAGE), WINDOW, "bf16", True, *AROUND),
        Problem("conv", ((8, 3, 32, 32), (16, 3, 3, 3)), (8, 16, 32, 32), "f32", False, *AROUND),
    ],
    ids=lambda p: f"{p.kind} {p.dtype}",
)
def test_a_plan_is_written_and_read(problem: Problem) -> None:
    library: Any = Library()
    made = Convolution(library, problem)
    kept = made.choice()
    read = Convolution(library, problem, kept)
    assert read.engine == made.engine == kept.name and kept.name.startswith("eng")
    assert read._graph.get_workspace_size() == made._graph.get_workspace_size() <= problem.workspace
    for graph in (made._graph, read._graph):
        assert graph._variant_pack_uids() == [1, 2, 3]  # what `run` calls the operands, in the order of its arguments
