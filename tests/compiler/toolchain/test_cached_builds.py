"""Builds through the cache: nothing is compiled twice, and the bytes are those of a build without it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from interruption.interrupts import elsewhere, leaves_nothing, spread

from dslc.base.cache import Cache
from dslc.base.errors import ResourceError
from dslc.compiler.build_result import BuildResult
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build
from dslc.compiler.toolchain import jobs as jobs_module
from dslc.compiler.toolchain import kernel_compiler as kernels_module
from dslc.compiler.toolchain import processes as crew_module
from dslc.compiler.toolchain.jobs import Job
from dslc.compiler.toolchain.kernel_compiler import KernelCompiler
from dslc.compiler.toolchain.processes import Processes

MODEL = """nn 1
dim B in 1..64 = 8
model Net(x: [B, 6]) -> [B, 3] {{
  return x |> linear({hidden}) as a |> relu |> linear(3) as b |> softmax
}}
"""
OWN = Options(provider="own", sizes={"predict": {"B": (8,)}})


def written(folder: Path, hidden: int = 5) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "net.nn"
    path.write_text(MODEL.format(hidden=hidden))
    return path


def built(path: Path, cache: Cache) -> BuildResult:
    return build(check_file(str(path)), OWN, cache=cache)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BuildResult]:
    """A cache after one build, and the build."""
    folder = tmp_path_factory.mktemp("shared")
    cache = Cache(folder / "cache")
    return folder / "cache", built(written(folder), cache)


def test_the_second_build_compiles_nothing(shared: tuple[Path, BuildResult], tmp_path: Path) -> None:
    folder, first = shared
    assert first.cache.compiled == first.kernels == len(Cache(folder).entries()) > 4
    second = built(written(tmp_path), Cache(folder))
    assert (second.cache.compiled, second.cache.misses, second.cache.hits) == (0, 0, first.kernels)
    assert second.artifact == first.artifact


def test_a_build_without_a_cache_gives_the_same_bytes(shared: tuple[Path, BuildResult], tmp_path: Path) -> None:
    alone = built(written(tmp_path), Cache(None))
    assert alone.cache.compiled == alone.kernels and alone.artifact == shared[1].artifact


def test_another_layer_compiles_its_own_kernels_alone(shared: tuple[Path, BuildResult], tmp_path: Path) -> None:
    result = built(written(tmp_path, hidden=7), Cache(shared[0]))
    assert 0 < result.cache.compiled < result.kernels and result.cache.hits > 0
    assert result.artifact != shared[1].artifact


def test_a_damaged_entry_is_compiled_again(shared: tuple[Path, BuildResult], tmp_path: Path) -> None:
    folder, first = shared
    victim = folder / Cache(folder).entries()[0].name
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 4
    victim.write_bytes(data)
    with pytest.warns(match="damaged"):
        result = built(written(tmp_path), Cache(folder))
    assert result.cache.compiled == 1 and result.artifact == first.artifact


def test_other_sources_of_the_compiler_have_entries_of_their_own(
    shared: tuple[Path, BuildResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "sources_digest", lambda: "of another version")
    assert built(written(tmp_path), Cache(shared[0])).cache.hits == 0


def command(folder: Path, home: Path, **environment: str) -> dict[str, Any]:
    """``dslc build --json`` of the model in a folder."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DSLC_CACHE", "XDG_"))}
    ran = subprocess.run(
        [sys.executable, "-m", "dslc", "build", "net.nn", "--providers", "own", "--size", "predict:B=8", "--json"],
        cwd=folder, env={**env, "HOME": str(home), **environment}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.slow
def test_the_command_counts(tmp_path: Path) -> None:
    """In another folder, for another home with the same cache, and for a home with none."""
    one, two = tmp_path / "one", tmp_path / "a longer name"
    written(one)
    written(two)
    first = command(one, tmp_path / "home")
    count = first["kernels"]["total"]
    assert count > 4 and first["kernels"] == {"total": count, "compiled": count, "cached": 0}
    again = command(two, tmp_path / "other", XDG_CACHE_HOME=str(tmp_path / "home" / ".cache"), PYTHONHASHSEED="7")
    assert again["kernels"] == {"total": count, "compiled": 0, "cached": count}
    same = [(folder / "build/net/net.dslc").read_bytes() for folder in (one, two)]
    assert same[0] == same[1] and not (tmp_path / "other").exists()
    without = command(two, tmp_path / "other", DSLC_CACHE_DIR="off")
    assert without["kernels"]["cached"] == 0 and not (tmp_path / "other").exists()
    assert (two / "build/net/net.dslc").read_bytes() == same[0]


def jobs_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs of a build, none of them done."""
    seen: list[Job] = []

    def noted(self: KernelCompiler, jobs: list[Job]) -> list[bytes]:
        seen.extend(jobs)
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(KernelCompiler, "compile", noted)
        with pytest.raises(InterruptedError):
            built(path, Cache(None))
    return seen


def test_workers_give_what_this_process_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_of(written(tmp_path), monkeypatch)[:4]
    monkeypatch.setattr(kernels_module, "_SHARE", 1)
    told: list[tuple[str, int, int]] = []
    cache = Cache(tmp_path / "cache")
    found: list[tuple[Job, bytes]] = []
    keep = lambda *each: found.append(each)  # noqa: E731
    parallel = KernelCompiler(cache, lambda *told_now: told.append(told_now), processes=2, found=keep).compile(jobs)
    assert len(found) == 4 and dict(found) == dict(zip(jobs, parallel))
    assert KernelCompiler(cache, found=keep).compile(jobs) == parallel and found[4:] == list(zip(jobs, parallel))
    assert parallel == KernelCompiler(Cache(None), processes=1).compile(list(reversed(jobs)))[::-1]
    assert told[0][:2] == ("kernels", 0) and told[-1] == ("kernels", 4, 4)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert not [p for p in (tmp_path / "cache").iterdir() if p.name.startswith(".")]


def killed_once(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Workers are killed when they are given a job, so many times."""
    killed: list[int] = []
    give = crew_module._Worker.give

    def give_and_kill(self: crew_module._Worker, job: Job) -> None:
        give(self, job)
        if len(killed) < times:
            self.process.kill()
            killed.append(self.process.pid)

    monkeypatch.setattr(crew_module._Worker, "give", give_and_kill)
    return killed


def test_a_worker_that_dies_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_of(written(tmp_path), monkeypatch)[:3]
    wanted = KernelCompiler(Cache(None), processes=1).compile(jobs)
    monkeypatch.setattr(kernels_module, "_SHARE", 1)
    killed = killed_once(monkeypatch, 1)
    assert KernelCompiler(Cache(None), processes=2).compile(jobs) == wanted and len(killed) == 1


def test_a_kernel_that_kills_twice_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_of(written(tmp_path), monkeypatch)[:3]
    monkeypatch.setattr(kernels_module, "_SHARE", 1)
    killed_once(monkeypatch, 100)
    cache = Cache(tmp_path / "cache")
    with pytest.raises(Exception, match="killed by SIGKILL") as caught:
        KernelCompiler(cache, processes=2).compile(jobs)
    assert getattr(caught.value, "code", None) == "R401"
    assert not [p for p in (tmp_path / "cache").iterdir() if p.name.endswith(".lock")], "claims are given back"


def test_a_worker_that_crashes_tells_its_own_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It gives up its pipe before it has ended: nothing that is sent to it then may pass for the cause."""
    jobs = jobs_of(written(tmp_path), monkeypatch)[:3]
    monkeypatch.setattr(kernels_module, "_SHARE", 1)
    crash = (
        "import os, sys, time; sys.stdin.readline(); os.write(1, b'{\"ready\": true}\\n'); sys.stdin.readline();"
        "os.close(1); time.sleep(0.3); os.write(2, b'LLVM ERROR: out of registers'); os._exit(7)"
    )
    monkeypatch.setattr(crew_module, "_START", crash)
    with pytest.raises(ResourceError, match="exit code 7: LLVM ERROR: out of registers") as caught:
        KernelCompiler(Cache(tmp_path / "cache"), processes=2).compile(jobs)
    assert caught.value.code == "R406"
    assert "LLVM ERROR" in capfd.readouterr().err


@pytest.mark.parametrize("how", ["no process", "no Python", "other sources"])
def test_where_no_worker_can_be_had_the_work_is_done_here(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = jobs_of(written(tmp_path), monkeypatch)[:2]
    monkeypatch.setattr(kernels_module, "_SHARE", 1)
    if how == "no process":

        def refused(*_: object, **__: object) -> None:
            raise BlockingIOError(11, "Resource temporarily unavailable")

        monkeypatch.setattr("subprocess.Popen", refused)
    elif how == "no Python":
        monkeypatch.setattr(crew_module, "_START", "raise SystemExit(3)")
    else:
        monkeypatch.setattr(crew_module, "sources_digest", lambda: "of another version")
    codes = KernelCompiler(Cache(None), processes=2).compile(jobs)
    assert len(codes) == 2 and all(codes)


STUB = (
    "import sys\nsys.stdin.readline()\nprint('{\"ready\": true}', flush=True)\nfor line in sys.stdin:\n"
    "    print('{\"bytes\": 3, \"loose\": null}', flush=True); print('OK', flush=True)"
)


def test_a_worker_that_stops_before_it_reads_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is longer than a pipe takes; another worker gets it."""
    jobs = jobs_of(written(tmp_path), monkeypatch)[:2]
    mark = tmp_path / "stopped"
    stops = f"import os, signal\nif not os.path.exists({str(mark)!r}): open({str(mark)!r}, 'w'); first = True\n"
    stops += "else: first = False\n" + STUB.replace(
        "for line", "if first: os.kill(os.getpid(), signal.SIGSTOP)\nfor line"
    )
    monkeypatch.setattr(crew_module, "_START", stops)
    monkeypatch.setattr(crew_module, "canonical", lambda spec: "x" * (4 << 20))
    monkeypatch.setattr(kernels_module, "_SHARE", 1)
    found = elsewhere(lambda: KernelCompiler(Cache(None), processes=2).compile(jobs), 60.0)
    assert found == [b"OK\n"] * 2 and mark.exists()


@pytest.mark.slow
def test_an_interrupt_at_any_point_leaves_no_worker_and_no_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = jobs_of(written(tmp_path), monkeypatch)[:3]
    monkeypatch.setattr(kernels_module, "_SHARE", 1)
    monkeypatch.setattr(crew_module, "_START", STUB)
    folder = tmp_path / "cache"

    def compiled() -> list[bytes]:
        Cache(folder).clear()
        return KernelCompiler(Cache(folder), processes=2).compile(jobs)

    leaves_nothing(compiled, folder, spread(30), least=800)


def test_closing_ends_the_workers() -> None:
    crew = Processes(2)
    crew.start()
    processes = [w.process for w in crew._workers]
    crew.close()
    assert all(p.poll() is not None for p in processes)


def test_a_worker_whose_parent_was_killed_says_nothing() -> None:
    command = [sys.executable, "-c", crew_module._START, str(Path(crew_module.__file__).parents[3])]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as worker:
        assert worker.stdin is not None and worker.stdout is not None and worker.stderr is not None
        worker.stdout.close()
        worker.stdin.write(b"digest\n")
        worker.stdin.close()
        assert worker.stderr.read() == b"" and worker.wait() == -signal.SIGPIPE
