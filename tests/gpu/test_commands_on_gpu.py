"""``dslc doctor``, ``bench`` and ``warm`` on a real GPU, and a kernel that does not end.

Needs what ``test_session_on_gpu.py`` and ``test_vendor.py`` need; takes their artifacts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import ROOT
from real_gpu.launcher import why_not

from dslc.base.errors import EnvironmentFault
from dslc.runtime.cuda.libraries import cudnn
from dslc.runtime.session import measure
from dslc.runtime.session.load import load

MADE = ROOT / ".gpu"
MLP = MADE / "build" / "mlp" / "mlp.dslc"
VENDOR = MADE / "vendor" / "resnet.vendor.dslc"

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.timeout(300),
]
needs_mlp = pytest.mark.skipif(not MLP.exists(), reason="no artifacts in .gpu/build: make gpu-artifacts")


def dslc(*args: object) -> tuple[int, Any]:
    ran = subprocess.run(
        [sys.executable, "-m", "dslc", *map(str, args), "--json"], capture_output=True, text=True, timeout=200
    )
    return ran.returncode, json.loads(ran.stdout)


def test_doctor_finds_the_gpu() -> None:
    code, data = dslc("doctor", "--device", "gpu")
    assert code == 0 and data["sound"]
    facts = {f["name"]: f["value"] for f in data["facts"]}
    assert facts["driver"].startswith("CUDA ") and ", sm_" in facts["gpu:0"]
    assert dslc("doctor", "--device", "gpu:99")[0] == 4


@needs_mlp
def test_bench() -> None:
    code, data = dslc("bench", MLP, "--device", "gpu", "--seconds", "0.5")
    assert code == 0 and data["device"] == "gpu:0"
    assert data["counted"]["graph_launches"] == 1 and data["counted"]["synchronisations"] == 0
    assert 1e-6 < data["step"]["min"] <= data["step"]["median"] < 0.1
    assert data["roof"]["copy"] > 1e11 and data["roof"]["matrix16"] > data["roof"]["f32"] > 1e12
    assert 0 < data["nodes_seconds"] < 10 * data["step"]["median"]
    assert all(row["seconds"] < data["step"]["median"] for row in data["nodes"])


@needs_mlp
def test_a_kernel_that_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends after 6 s, so that the GPU is free again whatever becomes of the process."""
    code = """
        import sys, time
        from dslc.base.errors import DslcError
        from dslc.runtime.cuda.arguments import Arguments
        from dslc.runtime.session.measure import program_of, random_inputs
        from dslc.runtime.cuda.owned import Owned
        from dslc.runtime.session.load import load
        PTX = b'''.version 8.0
        .target sm_80
        .address_size 64
        .visible .entry spin(.param .u64 unused) {
            .reg .u64 %t<3>;
            .reg .pred %again;
            mov.u64 %t0, %globaltimer;
        L:  mov.u64 %t1, %globaltimer;
            sub.u64 %t2, %t1, %t0;
            setp.lt.u64 %again, %t2, 6000000000;
            @%again bra L;
            ret;
        }
        '''
        session = load(sys.argv[1], device="gpu", weights="init")
        inputs = random_inputs(session, program_of(session, "train_step", {}))
        print(session.train_step(**inputs).loss > 0)
        [lane] = session._backend._lanes
        owned = Owned(lane.device)
        with lane.device as device:
            spin = device.driver.function(device.driver.load_module(PTX + b"\\0", owned.noted), "spin")
            device.driver.launch(spin, (1, 1, 1), (1, 1, 1), 0, Arguments([("pointer", 0)]), lane.stream)
        begun = time.monotonic()
        for call in (lambda: session.train_step(**inputs).loss, session.state_tensors):
            try:
                call()
            except DslcError as error:
                print(error.code, error.place, round(time.monotonic() - begun))
        session.close()
    """
    monkeypatch.setenv("DSLC_GPU_TIMEOUT", "2")
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(MLP)], capture_output=True, text=True, timeout=100
    )
    assert ran.returncode == 0, ran.stderr
    first, told, again = ran.stdout.splitlines()
    assert first == "True" and told.startswith("R208 train_step@") and told.endswith(" 2")
    assert again.startswith("R207 ") and again.endswith(" 2")
    with load(MLP, device="gpu", weights="init") as session:  # another process is well
        session.state_tensors()


def _no_libraries() -> str | None:
    if not VENDOR.exists():
        return "no .gpu/vendor; make it with: python tests/support/make_vendor.py"
    try:
        cudnn.load_cudnn()
    except EnvironmentFault as error:
        return error.message
    return None


@pytest.mark.skipif(why_not() is not None or _no_libraries() is not None, reason=str(_no_libraries()))
@pytest.mark.filterwarnings(r"ignore:\[W007\]")
def test_warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSLC_CACHE_DIR", str(tmp_path / "cache"))
    found = []
    for number in range(3):
        with load(VENDOR, device="gpu", weights="init", seed=1) as session:
            libraries = session._backend._libraries  # type: ignore[attr-defined]
            inputs = measure.random_inputs(session, measure.program_of(session, "train_step", {}))
            losses = [session.train_step(**inputs).loss for _ in range(3)]
            state = b"".join(np.asarray(v).tobytes() for v in session.state_tensors().values())
            found.append((losses, state, dict(libraries.choices)))
            assert libraries.used == (len(libraries.choices) if number else 0)
            if not number:
                assert session.keep_choices() == len(libraries.choices) > 5
    assert found[0] == found[1] == found[2]
