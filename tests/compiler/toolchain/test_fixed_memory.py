"""Memory of a compiler's library at fixed addresses: the allocator, and what a build does without it."""

from __future__ import annotations

import ctypes
import itertools
import random
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dslc.base.cache import Cache
from dslc.base.errors import DslcWarning
from dslc.compiler.cached_build import finished
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.compiler.toolchain import fixed_memory
from dslc.compiler.toolchain import processes as crew_module
from dslc.compiler.toolchain.allocator import SPAN
from dslc.runtime.artifact.file import read_artifact

BASE = 1 << 38  # apart from the libraries'


class Arena:
    """The allocator's functions, for Python; None for a null pointer."""

    def __init__(self) -> None:
        fixed_memory._reserve(BASE)
        code = fixed_memory._code(BASE)
        word, place = ctypes.c_size_t, ctypes.c_void_p
        self.malloc = ctypes.CFUNCTYPE(place, word)(code["malloc"])
        self.calloc = ctypes.CFUNCTYPE(place, word, word)(code["calloc"])
        self.realloc = ctypes.CFUNCTYPE(place, place, word)(code["realloc"])
        self.free = ctypes.CFUNCTYPE(None, place)(code["free"])
        self.posix_memalign = ctypes.CFUNCTYPE(ctypes.c_int, place, word, word)(code["posix_memalign"])

    def aligned(self, alignment: int, count: int) -> int:
        found = ctypes.c_void_p()
        assert self.posix_memalign(ctypes.addressof(found), alignment, count) == 0
        assert found.value is not None
        return found.value


@pytest.fixture
def arena() -> Iterator[Arena]:
    yield Arena()
    libc = fixed_memory._libc()
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    assert libc.munmap(BASE, SPAN) == 0


def test_blocks_keep_what_is_written_and_overlap_nothing(arena: Arena, fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    held: dict[int, bytes] = {}
    for _ in range(4000):
        deed = rng.choice(["malloc", "calloc", "aligned", "realloc", "free", "free"])
        count = rng.choice([0, rng.randrange(64), rng.randrange(5000), rng.randrange(1 << 18)])
        if deed in ("realloc", "free") and held:
            place = rng.choice(list(held))
            data = held.pop(place)
            assert ctypes.string_at(place, len(data)) == data
            if deed == "free":
                arena.free(place)
                continue
            at = arena.realloc(place, count)
            assert ctypes.string_at(at, min(count, len(data))) == data[:count]
        elif deed == "aligned":
            alignment = 1 << rng.randrange(3, 13)
            at = arena.aligned(alignment, count)
            assert at % alignment == 0
        elif deed == "calloc":
            at = arena.calloc(count, 3)
            assert ctypes.string_at(at, 3 * count) == bytes(3 * count)
        else:
            at = arena.malloc(count)
        assert BASE < at <= at + count <= BASE + SPAN and at % 16 == 0
        held[at] = rng.randbytes(count)
        ctypes.memmove(at, held[at], count)
    places = sorted((at, len(data)) for at, data in held.items())
    assert all(at + count <= after for (at, count), (after, _) in itertools.pairwise(places))


def test_limits(arena: Arena) -> None:
    assert arena.malloc(100) == BASE + 16, "the first block of all lies at the first address"
    assert arena.malloc(SPAN) is None and arena.malloc(2**64 - 1) is None and arena.calloc(2**33, 2**33) is None
    assert arena.posix_memalign(BASE + 16, 2**63, 8) == 12
    large = arena.malloc(SPAN // 4 - 16)  # more than is taken from the system at a time
    ctypes.memset(large + SPAN // 4 - 17, 7, 1)
    arena.free(large)
    assert arena.malloc(SPAN // 8) == large, "what is given back is used again"
    arena.free(None)


def test_what_the_c_library_gave_goes_back_to_it(arena: Arena) -> None:
    libc = fixed_memory._libc()
    libc.strdup.restype = ctypes.c_void_p
    text = libc.strdup(b"from outside")
    text = arena.realloc(text, 1 << 16)
    assert ctypes.string_at(text) == b"from outside" and not BASE <= text < BASE + SPAN
    arena.free(text)


def test_addresses_that_are_taken_are_refused(arena: Arena) -> None:
    with pytest.raises(OSError, match="2 GiB at 0x4000000000 are not free"):
        fixed_memory._reserve(BASE)


MODEL = """nn 1
dim B in 1..8 = 2
model Small(x: [B, 6]) -> [B, 3] { return x |> linear(5) as a |> relu |> linear(3) as b |> softmax }
"""


def small(folder: Path) -> Any:
    path = folder / "small.nn"
    path.write_text(MODEL)
    return check_file(str(path))


def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", refused)


def no_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "import os\ndef refused(): raise BlockingIOError(11, 'Resource temporarily unavailable')\nos.fork = refused\n"
    )
    monkeypatch.setattr(crew_module, "_START", lines + crew_module._START)


def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = f"import resource\nresource.setrlimit(resource.RLIMIT_AS, ({3 << 30}, {3 << 30}))\n"
    monkeypatch.setattr(crew_module, "_START", lines + crew_module._START)


@pytest.mark.parametrize(
    ("without", "told"),
    [
        (no_process, "no process for their compilers could be started"),
        pytest.param(no_fork, "no process could be started: Resource temporarily unavailable", marks=pytest.mark.slow),
        pytest.param(no_room, "the compilers' memory has no fixed addresses: 2 GiB at 0x2", marks=pytest.mark.slow),
    ],
)
def test_a_build_that_may_differ_says_so_and_is_not_kept(
    without: Callable[[pytest.MonkeyPatch], None], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked, options, cache = small(tmp_path), Options(target="sm_90"), Cache(tmp_path / "cache")
    with monkeypatch.context() as patch:
        without(patch)
        with pytest.warns(DslcWarning, match=told) as caught:
            found = finished(checked, options, None, cache)
    assert [w.message.code for w in caught] == ["W009"]  # type: ignore[union-attr]
    assert found.compiled > 2 and not cache.entries()
    path = tmp_path / "small.dslc"
    path.write_bytes(found.files["small.dslc"])
    read_artifact(path).verify()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert finished(checked, options, None, Cache(cache.folder)).compiled == found.compiled
    assert cache.entries()


WORKER = """
import os, sys
from dslc.compiler.toolchain import jobs, worker
jobs.prepared = worker.prepared = lambda kind: None
def run_job(job):
    print(os.getpid(), file=sys.stderr, flush=True)
    {deed}
worker.run_job = run_job
worker.main()
"""


def given_a_job(deed: str) -> subprocess.Popen[bytes]:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER.format(deed=deed)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    )  # fmt: skip
    assert worker.stdin is not None
    job = b'{"kind": "cuda_kernel", "symbol": "k", "spec": null, "options": [], "text": "None"}\n'
    worker.stdin.write(crew_module.sources_digest().encode() + b"\n" + job)
    return worker


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT"])
def test_a_worker_ends_as_its_child_does(name: str) -> None:
    with given_a_job(f"import signal; os.kill(os.getpid(), signal.{name})") as worker:
        worker.communicate(timeout=60)
    assert worker.returncode == -getattr(signal, name)


def test_a_child_ends_with_its_worker() -> None:
    with given_a_job("import time; time.sleep(1000)") as worker:
        assert worker.stderr is not None
        assert int(worker.stderr.readline()) != worker.pid
        worker.terminate()
        worker.wait(timeout=60)
        assert worker.stderr.read() == b"", "it ends when the last process that holds it has ended"
