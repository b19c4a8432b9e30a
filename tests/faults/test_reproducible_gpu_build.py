"""The same source gives the same bytes for a GPU: kernels compiled from scratch, whatever surrounds the build."""

from __future__ import annotations

import itertools
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

pytestmark = pytest.mark.slow

#: Models whose kernels NVRTC gave other code in every other process: f32 sums of products, attention, convolutions.
GPT = (ROOT / "benchmarks/gpt_mini.nn", ("-D", "layers=1"))
QUICK = ((ROOT / "examples/digits/lenet.nn", ()), (ROOT / "examples/vae/vae.nn", ()))
MORE = (
    *QUICK,
    (ROOT / "tests/models/unet.nn", ("--size", "B=2")),
    (ROOT / "benchmarks/gpt_mini.nn", ("-D", "layers=1", "--precision", "bf16")),
    (ROOT / "benchmarks/gpt_mini.nn", ("-D", "layers=1", "--precision", "tf32")),
    (ROOT / "benchmarks/gpt_mini.nn", ("-D", "layers=1", "--providers", "vendor")),
)
#: Variables that compilers read, which are none of the build's options, and those that move the memory of a process.
HOSTILE = {
    "NVRTC_APPEND_FLAGS": "--use_fast_math",
    "NVRTC_DISABLE_PCH": "1",
    "NUMBA_OPT": "0",
    "NUMBA_CUDA_FASTMATH": "1",
    "NUMBA_CUDA_DEBUGINFO_DEFAULT": "1",
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.mmap_threshold=4096",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_PERTURB_": "165",
    "PYTHONMALLOC": "malloc",
    "PYTHONDONTWRITEBYTECODE": "1",
    "COLUMNS": "20",
}


@dataclass(frozen=True)
class Surroundings:
    """What is to leave no trace in the bytes."""

    folder: str
    env: dict[str, str] = field(default_factory=dict)
    umask: int = 0o022
    processors: int | None = None  # how many it may use; None: all
    stack: int | None = None  # soft limit in bytes: where the system puts libraries depends on it
    load: bool = False
    options_nearby: bool = False  # files that compilers would read from the folder

    @contextmanager
    def loaded(self) -> Iterator[None]:
        if not self.load:
            yield
            return
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
        try:
            yield
        finally:
            for process in busy:
                process.kill()
                process.wait()

    def prepare(self) -> None:
        """In the process of the build, before it begins."""
        if self.processors is not None:
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-self.processors :])
        if self.stack is not None:
            hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
            resource.setrlimit(resource.RLIMIT_STACK, (self.stack, hard))


PLAIN = Surroundings("plain", {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "UTC"})


def surroundings(rng: random.Random) -> Surroundings:
    """Other ones, each aspect drawn by itself."""
    env = {name: value for name, value in HOSTILE.items() if rng.random() < 0.6}
    env["PYTHONHASHSEED"] = str(rng.randrange(1, 2**32))
    env["LC_ALL"] = rng.choice(["C", "C.UTF-8", "de_DE.UTF-8"])
    env["TZ"] = rng.choice(["UTC", "Asia/Kathmandu", "America/St_Johns"])
    env["FILLER"] = "x" * rng.randrange(1, 60_000)
    return Surroundings(
        "/".join(["f" * rng.randrange(1, 60) for _ in range(rng.randrange(1, 6))]) + "/über raschung",
        env,
        rng.choice([0o022, 0o077, 0o002]),
        rng.choice([None, 1, 2]),
        rng.choice([None, 16 << 20, 64 << 20]),
        rng.random() < 0.3,
        rng.random() < 0.5,
    )


def built(model: Path, args: tuple[str, ...], parent: Path, around: Surroundings) -> dict[str, bytes]:
    """All files of a build without a cache; the artifact's blobs by their names."""
    folder = parent / around.folder
    folder.mkdir(parents=True)
    shutil.copy(model, folder / model.name)
    if around.options_nearby:
        (folder / ".numba_config.yaml").write_text("opt: 0\ncuda_debuginfo_default: 1\n")
        (folder / "__nv_nvrtc_builtin_header.h").write_text("#error found\n")
    command = [sys.executable, "-m", "dslc", "build", model.name, "--target", "sm_90", *args]
    with around.loaded():
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "DSLC_CACHE_DIR": "off", **around.env},
            capture_output=True,
            text=True,
            timeout=300,
            umask=around.umask,
            preexec_fn=around.prepare,
        )
    assert done.returncode == 0, done.stderr
    assert "W009" not in done.stderr
    files = {p.name: p.read_bytes() for p in (folder / "build").rglob("*") if p.is_file() and p.suffix != ".lock"}
    assert any(name.endswith(".dslc") for name in files)
    return files


def differing(first: Path, second: Path) -> list[str]:
    """Names of the blobs that differ."""
    from dslc.runtime.artifact.file import read_artifact

    one, two = ({b["name"]: b["sha256"] for b in read_artifact(p).header["blobs"]} for p in (first, second))
    return sorted(name for name in {*one, *two} if one.get(name) != two.get(name))


def assert_equal(model: Path, args: tuple[str, ...], parent: Path, others: list[Surroundings]) -> None:
    first = built(model, args, parent / "first", PLAIN)
    for number, around in enumerate(others):
        found = built(model, args, parent / str(number), around)
        if found != first:
            pair = [next(p.rglob("*.dslc")) for p in (parent / "first", parent / str(number))]
            pytest.fail(f"{model.name} {args}: {differing(*pair) or [*found]} differ under {around}")


@pytest.mark.timeout(1800)
def test_same_bytes_in_any_surroundings(tmp_path: Path, fuzz_count: Callable[..., int], fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    worst = Surroundings("w" * 100, {**HOSTILE, "PYTHONHASHSEED": "77"}, 0o077, 1, 64 << 20, False, True)
    assert_equal(*GPT, tmp_path, [worst, *(surroundings(rng) for _ in range(fuzz_count(10) - 1))])


@pytest.mark.timeout(1800)
def test_same_bytes_of_more_models(tmp_path: Path, fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    chosen = MORE if fuzz_count(10) == 10 else rng.sample(QUICK, 1)
    for number, (model, args) in enumerate(chosen):
        assert_equal(
            model, args, tmp_path / str(number), [surroundings(rng) for _ in range(max(1, fuzz_count(10) // 3))]
        )


def test_a_kernel_does_not_depend_on_those_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker is given the kernels of a model in two orders, and each of some by itself."""
    from dslc.base.cache import Cache
    from dslc.compiler.check.model import check_file
    from dslc.compiler.options import Options
    from dslc.compiler.pipeline import build
    from dslc.compiler.toolchain.jobs import Job
    from dslc.compiler.toolchain.kernel_compiler import KernelCompiler

    jobs: list[Job] = []

    def noted(self: KernelCompiler, found: Any) -> list[bytes]:
        jobs.extend(found)
        raise InterruptedError

    with monkeypatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(KernelCompiler, "compile", noted)
        build(check_file(str(GPT[0]), None, {"layers": "1"}), Options(target="sm_90"), None, Cache(None))
    jobs = [job for job in jobs if "contract.cu" in repr(job.spec)][:6] + jobs[:3]

    def compiled(order: list[Job]) -> dict[str, bytes]:
        return {
            j.symbol: c for j, c in zip(order, KernelCompiler(Cache(None), processes=1).compile(order), strict=True)
        }

    wanted = compiled(jobs)
    assert compiled(jobs[::-1]) == wanted
    for job in itertools.islice(jobs, 3):
        assert compiled([job]) == {job.symbol: wanted[job.symbol]}
