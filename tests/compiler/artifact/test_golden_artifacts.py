"""Artifacts of eleven builds, which cover the generators of code, have the digests that were recorded.

A change that is to leave all bytes as they are, as a renaming, is seen to do so. Digests hold for the versions of the
compilers that made them; these are recorded, too.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from places import ROOT

from dslc.base.cache import Cache
from dslc.base.canonical import dumps
from dslc.cli.locks.find import with_lock
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.cuda_cpp import Code, CppKernel
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build
from dslc.compiler.toolchain.jobs import Job
from dslc.compiler.toolchain.kernel_compiler import KernelCompiler
from dslc.compiler.toolchain.versions import toolchain
from dslc.runtime.artifact.file import Artifact

pytestmark = pytest.mark.slow

DIGESTS = ROOT / "tests/golden/artifacts"


@dataclass(frozen=True)
class Case:
    file: str
    batch: int
    options: dict[str, Any]
    arguments: dict[str, str] = field(default_factory=dict)
    always: bool = False  # else in the soak alone
    lock: str | None = None  # with it, the build is `--locked`, for the sizes that were measured


CASES = {
    "lenet_cpu": Case("examples/digits/lenet.nn", 8, {"target": "cpu"}),
    "lenet_gpu": Case("examples/digits/lenet.nn", 8, {"target": "sm_90"}),
    "lenet_locked": Case(
        "examples/digits/lenet.nn", 64, {"target": "sm_90"}, lock="tests/golden/lock/lenet.lock", always=True
    ),
    "lstm_cpu": Case("tests/compiler/artifact/models/lstm.nn", 4, {"target": "cpu"}, always=True),
    "lstm_gpu": Case("tests/compiler/artifact/models/lstm.nn", 4, {"target": "sm_90"}),
    "mlp_tf32": Case("examples/mlp/mlp.nn", 8, {"target": "sm_90", "precision": "tf32"}, always=True),
    "unet_cpu": Case("examples/unet/unet.nn", 2, {"target": "cpu"}, {"depth": "1", "width": "8"}),
    "vae_reference": Case(
        "examples/vae/vae.nn", 8, {"target": "cpu", "precision": "f64", "provider": "reference"}, always=True
    ),
    "resnet_own": Case(
        "tests/compiler/artifact/models/resnet.nn",
        4,
        {"target": "sm_90", "precision": "bf16", "provider": "own"},
        always=True,
    ),
    "resnet_vendor": Case(
        "tests/compiler/artifact/models/resnet.nn", 4, {"target": "sm_90", "precision": "bf16", "provider": "vendor"}
    ),
    "gpt_bf16": Case("benchmarks/gpt_mini.nn", 16, {"target": "sm_90", "precision": "bf16"}, {"layers": "1"}),
}


def compilers(case: Case) -> dict[str, str]:
    """Their versions, by the targets of the case: dslc itself is under test."""
    return {name: v for name, v in toolchain(case.options["target"].split(",")).items() if name != "dslc"}


def described(case: Case, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the golden file says: versions, then digests, from the whole down to who made which code."""
    jobs: list[Job] = []
    compile_jobs = KernelCompiler.compile

    def noted(self: KernelCompiler, found: Iterable[Job]) -> list[bytes]:
        jobs.extend(found := list(found))
        return compile_jobs(self, found)

    monkeypatch.setattr(KernelCompiler, "compile", noted)
    sizes = {} if case.lock else {entry: {"B": (case.batch,)} for entry in ("train", "eval", "predict")}
    options = Options(**case.options, sizes=sizes, locked=case.lock is not None)
    if case.lock:
        options = with_lock(options, ROOT, ROOT / case.lock)
    checked = check_file(str(ROOT / case.file), None, case.arguments)
    result = build(checked, options, None, Cache(None))
    if result.loose:
        pytest.skip("this machine gives the compilers no memory at fixed addresses (W009): bytes may differ")
    header = dict(Artifact.of_bytes(result.artifact).header)
    nvrtc = {job.symbol for job in jobs if isinstance(job.spec, Code | CppKernel)}
    groups: dict[str, list[str]] = {}
    for blob in header["blobs"]:
        kind = blob["kind"]
        if kind in ("ptx", "cubin"):
            kind = f"{kind} of {'NVRTC' if blob['name'].partition('.')[0] in nvrtc else 'Numba'}"
        groups.setdefault(blob["name"] if kind == "object" else kind, []).append(f"{blob['name']} {blob['sha256']}")
    del header["blobs"], header["toolchain"]
    lines = [f"{name} {version}" for name, version in sorted(compilers(case).items())]
    lines += ["", f"artifact {_digest(result.artifact)}", f"header without blobs {_digest(dumps(header))}"]
    lines += [
        f"{name} ({len(each)}) {_digest(' '.join(sorted(each)).encode())}" for name, each in sorted(groups.items())
    ]
    return "\n".join(lines) + "\n"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def other_versions(recorded: str, now: dict[str, str]) -> str | None:
    """Why digests of the recorded text say nothing here, or None."""
    then = dict(re.findall(r"^(\S+) (\S+)$", recorded.partition("\n\n")[0], re.MULTILINE))
    differing = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
    if not differing:
        return None
    each = (f"{n} {now.get(n, 'none')} is here, {then.get(n, 'none')} was recorded" for n in differing)
    return "digests are of other compilers: " + "; ".join(each)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CASES)
def test_bytes_are_those_recorded(
    name: str, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    case, path = CASES[name], DIGESTS / f"{name}.txt"
    updated = request.config.getoption("--update-golden")
    if not case.always and not updated and os.environ.get("DSLC_SOAK") != "1":
        pytest.skip("six of the eleven golden artifacts are built in the soak alone: DSLC_SOAK=1")
    if not updated and path.exists() and (why := other_versions(path.read_text(), compilers(case))):
        pytest.skip(why)
    golden(f"artifacts/{name}.txt", described(case, monkeypatch))


def test_other_versions_are_told() -> None:
    recorded = "llvmlite 0.1\npython 3.11\n\nartifact 00\n"
    assert other_versions(recorded, {"llvmlite": "0.1", "python": "3.11"}) is None
    why = other_versions(recorded, {"llvmlite": "0.2", "numba": "7"})
    assert why is not None
    assert "llvmlite 0.2 is here, 0.1 was recorded" in why
    assert "numba 7 is here, none was recorded" in why and "python none is here, 3.11 was recorded" in why


def test_a_golden_file_for_each() -> None:
    assert {path.stem for path in DIGESTS.iterdir()} == CASES.keys()
