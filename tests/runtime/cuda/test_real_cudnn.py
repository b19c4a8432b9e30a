"""What we tell cuDNN's own package, where it is installed; no GPU is needed. Plans are made for an H200.

Elsewhere ``fake_libraries.py`` stands for it: this holds the fake to the real one.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dslc.base.errors import EnvironmentFault
from dslc.runtime.cuda.libraries import cudnn
from dslc.runtime.cuda.libraries.cudnn import Cudnn, load_cudnn
from dslc.runtime.cuda.libraries.cudnn_problems import Attention, Convolution

H200 = {
    "deviceVer": 900, "multiProcessorCount": 132, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536,
    "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "regsPerBlock": 65536,
    "totalGlobalMem": 150109880320, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "l2CacheSize": 62914560,
    "maxBlockSize": [1024, 1024, 64], "maxGridSize": [2147483647, 65535, 65535], "supportCoopLaunch": 1,
    "pciDeviceId": 0, "isTccDriver": 0, "cudaDeviceId": 0, "driverVer": 13000, "deviceName": "NVIDIA H200",
}  # fmt: skip
IMAGE, WINDOW = (256, 56, 56, 64), (64, 3, 3, 64)
VOLUMES = ((2, 32, 32, 32, 32), (64, 3, 3, 2, 32), (2, 32, 32, 16, 64))  # an image, a weight and a result
AROUND = ((1, 1), (1, 1), (1, 1), 32 << 20)
PROBLEMS = [
    Convolution("conv", (IMAGE, WINDOW), IMAGE, "bf16", True, *AROUND),
    Convolution("conv_dgrad", (IMAGE, WINDOW), IMAGE, "bf16", True, *AROUND),
    Convolution("conv_wgrad", (IMAGE, IMAGE), WINDOW, "bf16", True, *AROUND),
    Convolution("conv_wgrad", ((256, 28, 28, 128), (256, 28, 28, 512)), (512, 1, 1, 128), "bf16", True,
            (1, 1), (0, 0), (1, 1), 32 << 20),
    # Two modes propose plans that differ in knob 0 alone, for which the package has no name.
    Convolution("conv_wgrad", ((6, 35, 32, 56), (6, 11, 32, 64)), (64, 4, 3, 56), "bf16", True,
            (3, 1), (0, 1), (1, 1), 32 << 20),
    Convolution("conv", ((8, 3, 32, 32), (16, 3, 3, 3)), (8, 16, 32, 32), "f32", False, *AROUND),
    *(
        Convolution(kind, tuple(VOLUMES[i] for i in of), VOLUMES[out], "bf16", True,
                (1, 1, 2), (1, 1, 0), (1, 1, 1), 32 << 20)
        for kind, *of, out in (("conv", 0, 1, 2), ("conv_dgrad", 2, 1, 0), ("conv_wgrad", 0, 2, 1))
    ),
]  # fmt: skip


class Counting(Cudnn):
    """cuDNN without a GPU: descriptions and plans, nothing runs."""

    def __init__(self) -> None:
        try:
            self.module = load_cudnn()
        except EnvironmentFault as error:
            pytest.skip(error.message)
        self._declines = (self.module.cudnnGraphNotSupportedError, RuntimeError, ValueError)
        self._device = self.module.create_device_properties(json.dumps(H200))

    def graph(self, **options: Any) -> Any:
        return self.module.pygraph(device_property=self._device, sm_version=90, **options)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.kind} {p.dtype} {p.out}")
def test_a_plan_is_made_again_from_its_name(problem: Convolution, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Counting()
    found = library.candidates(problem, 1 << 40, deterministic=True)
    assert library.default(problem) in found and len(found) > 5
    assert {name for name, _ in found} <= {name for name, _ in library.candidates(problem, 1 << 40, False)}
    backend = library.module._pybind_module.backend_graph
    asked = backend.create_execution_plans
    questions: list[Any] = []
    monkeypatch.setattr(backend, "create_execution_plans", lambda *given: (questions.append(given), asked(*given))[1])
    for name, need in found:
        questions.clear()
        made = library.prepare(replace(problem, algorithm=name, workspace=need))
        assert (made.algorithm, made.workspace) == (name, need)
        assert made.built._variant_pack_uids() == [
            1,
            2,
            3,
        ]  # what `run` calls the operands, in the order of its arguments
        # the package cannot say the deprecated knobs
        assert not questions or any(int(k.split("=")[0]) not in cudnn._KNOBS for k in name.split("_k")[1:]), name
        if need:
            with pytest.raises(EnvironmentFault, match="R202"):
                library.prepare(replace(problem, algorithm=name, workspace=need - 1))


def test_the_default_is_no_fallback_where_another_mode_proposes_plans() -> None:
    """Mode A of cuDNN 9.19 has none for V-Net's windows, B has eleven."""
    library, image = Counting(), (2, 16, 16, 8, 256)
    problem = Convolution(
        "conv", (image, (256, 5, 5, 5, 256)), image, "bf16", True, (1,) * 3, (2,) * 3, (1,) * 3, 32 << 20
    )
    fallback = {made.algorithm for made in library._proposed(problem, library.module.heur_mode.FALLBACK, True)}
    assert fallback and library.default(problem)[0] not in fallback


def test_the_default_is_on_tensor_cores() -> None:
    """Mode A of cuDNN 9.19 names ``eng0`` first for this gradient of SlowFast's."""
    library, image = Counting(), (8, 32, 7, 7, 64)
    problem = Convolution(
        "conv_dgrad", (image, (64, 1, 3, 3, 64)), image, "bf16", True, (1,) * 3, (0, 1, 1), (1,) * 3, 32 << 20
    )
    proposed = partial(library._proposed, problem, library.module.heur_mode.A, True)
    first, on_cores = next(proposed()).algorithm, {made.algorithm for made in proposed(problem.units)}
    assert on_cores < {made.algorithm for made in proposed()} and first not in on_cores
    assert library.default(problem)[0] in on_cores


def test_numbers_of_knobs_are_those_of_the_header() -> None:
    library = Counting()
    # The library's package need not be in the folder of the frontend's.
    package = find_spec("nvidia.cudnn")
    folders = [] if package is None else list(package.submodule_search_locations or ())
    headers = [h for folder in folders for h in Path(folder).glob("include/cudnn_graph_v9.h")]
    if not headers:
        pytest.skip("the headers of cuDNN are not installed")
    found = re.findall(r"CUDNN_KNOB_TYPE_(\w+)( CUDNN_DEPRECATED_ENUM)? += (\d+)", headers[0].read_text())
    known = {int(number): name for name, deprecated, number in found if not deprecated and name != "COUNTS"}
    assert known == cudnn._KNOBS and known.keys()
    assert all(hasattr(library.module.knob_type, name) for name in known.values())


@pytest.mark.parametrize("name", ["eng9999", "eng62_k2=99", "eng62_k14=1", "eng1_k0=3", "eng-1", "sdpa", ""])
def test_another_name_is_refused(name: str) -> None:
    library = Counting()
    if not name:
        assert library.prepare(PROBLEMS[0]).algorithm
        return
    with pytest.raises(EnvironmentFault, match=r"cuDNN 9.* cannot run") as caught:
        library.prepare(replace(PROBLEMS[0], algorithm=name))
    assert caught.value.code == "R202" and "dslc tune" in str(caught.value.help)


@pytest.mark.parametrize("kind", ["sdpa", "sdpa_grad"])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_is_described(kind: str, causal: bool) -> None:
    """As parts of one tensor [B, T, 3, H, d]. Its plans are compiled, for which cuDNN needs a driver."""
    library, (batch, heads, length, features) = Counting(), (2, 3, 256, 64)
    step = heads * features
    sizes = (batch, heads, length, features)
    parts = tuple((sizes, (3 * length * step, features, 3 * step, 1), n * step) for n in range(3))
    y = (sizes, (length * step, features, step, 1), 0)
    row = ((*sizes[:3], 1), (heads * length, length, 1, 1), 0)
    reads, writes = (
        (parts, ((0, y), (1, row))) if kind == "sdpa" else ((*parts, y, row, y), tuple((0, p) for p in parts))
    )
    graph = library._described(Attention(kind, reads, writes, "bf16", causal, 0.125, 1 << 30))
    assert graph._variant_pack_uids() == [*range(1, len(reads) + len(writes) + 1)]
