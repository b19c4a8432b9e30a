"""Builds the containers of candidates ahead of their measurement, on all processors, so that the GPU does not wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dslc.base.cache import Cache
from dslc.compiler.codegen.cuda.compare import BLOCKS, THREADS, Compare
from dslc.compiler.codegen.cuda.target import Cuda
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.targets import target_of
from dslc.compiler.ir.choice import OWN, Choice
from dslc.compiler.ir.scan import scan
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.plan.select_kernels import loop_by_model
from dslc.compiler.toolchain.jobs import Job
from dslc.compiler.toolchain.kernel_compiler import KernelCompiler
from dslc.runtime.artifact.container import Blob
from dslc.runtime.artifact.instructions import Gemm, GraphOp, Kernel
from dslc.runtime.artifact.plan import Plan
from dslc.tune.candidate import Recipe, pack_candidate, recipe
from dslc.tune.judge import Trial
from dslc.tune.problems import Problem

_FIRST: Final = 4  # problems whose candidates are listed first, so that measuring begins early
_AT_ONCE: Final = 24  # problems whose kernels are compiled together
_SHARE: Final = 2  # kernels that justify the start of a process: the GPU waits for the first ones

_COMPARED: Final = (
    DType.F64, DType.F32, DType.F16, DType.BF16, DType.I64, DType.I32, DType.I16, DType.I8, DType.U64, DType.U32,
    DType.U16, DType.U8,
)  # fmt: skip


class _Stopped(Exception):
    """Nobody needs the rest."""


@dataclass(frozen=True)
class Supplied:
    """The containers of a problem. ``reference``: its own default kernel; ``own``: its own variants; ``plain``: the own
    one that a build without measurements takes; ``library``: the call whose algorithm the library chooses, None if no
    library computes it; ``called``: builds without a lock call it."""

    problem: Problem
    reference: Path
    own: tuple[Trial, ...]
    plain: Choice
    library: Trial | None
    called: bool


def compile_comparer(target: str, cache: Cache, folder: Path) -> Path:
    """The container with the comparing kernels of a target, as the worker reads it."""
    made = target_of(target)
    launches = {dtype: Launch(Compare(dtype), (), ()) for dtype in _COMPARED}
    blobs = made.blobs({each.symbol: each.code for each in launches.values()}, KernelCompiler(cache, share=_SHARE))
    kernels = tuple(
        Kernel(made.blob_of(each.symbol), each.symbol, (BLOCKS, 1, 1), (THREADS, 1, 1), 0, (), 0, where)
        for where, each in enumerate(launches.values())
    )
    plan = Plan((), (), (), (), (), kernels, tuple(dtype.value for dtype in launches))
    path = folder / "comparer"
    path.write_bytes(pack_candidate(plan, (), blobs))
    return path


class Supply:
    """A thread that builds the candidates of problems, in order; those of a problem are ready when its last kernel is.
    ``variants``: own variants, too, not the defaults alone.

    ``with supply: ...`` ends the thread.
    """

    def __init__(self, wanted: Sequence[Problem], target: str, cache: Cache, folder: Path, *, variants: bool) -> None:
        self._wanted, self._target, self._cache, self._folder = wanted, target, cache, folder
        self._variants, self._gpu = variants, Cuda(target)
        self._ready: dict[str, Supplied | None] = {}
        self._changed = threading.Condition()
        self._stopped = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._number = 0
        self.compiled = 0

    def __enter__(self) -> Supply:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._thread.join()

    def get(self, problem: Problem, seconds: float) -> Supplied | None:
        """The candidates of a problem; None if it has no kernel. TimeoutError if they are not ready within ``seconds``;
        raises the errors of the compiler."""
        with self._changed:
            done = self._changed.wait_for(lambda: problem.key in self._ready or self._error is not None, seconds)
            if problem.key in self._ready:
                return self._ready[problem.key]
            if self._error is not None:
                raise self._error
            assert not done
            raise TimeoutError

    def _run(self) -> None:
        try:
            first = 0
            while first < len(self._wanted) and not self._stopped:
                last = first + (_AT_ONCE if first else _FIRST)
                self._some(self._wanted[first:last])
                first = last
        except _Stopped:
            return
        except BaseException as error:  # noqa: BLE001  # raised again by ``get``, in the thread that waits
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _some(self, problems: Sequence[Problem]) -> None:
        recipes = {problem.key: self._recipes(problem) for problem in problems}
        kernels: dict[str, Any] = {}
        for each in recipes.values():
            for _, made in each:
                kernels |= {symbol: spec for symbol, spec in made.kernels.items() if symbol not in kernels}
        waiting = deque(problems)
        blobs: dict[str, list[Blob]] = {}

        def write() -> None:
            while waiting and all(s in blobs for _, made in recipes[waiting[0].key] for s in made.kernels):
                problem = waiting.popleft()
                supplied = self._written(problem, recipes[problem.key], blobs)
                with self._changed:
                    self._ready[problem.key] = supplied
                    self._changed.notify_all()

        def found(job: Job, code: bytes) -> None:
            blobs[job.symbol] = self._gpu.blobs_of(job.symbol, code)
            write()

        write()
        self._gpu.blobs(kernels, KernelCompiler(self._cache, self._progress, share=_SHARE, found=found))

    def _progress(self, what: str, done: int, total: int) -> None:
        if self._stopped:
            raise _Stopped

    def _recipes(self, problem: Problem) -> list[tuple[Choice | None, Recipe]]:
        """By choice the candidates that can be built without a GPU; the choice None: the default of a library."""
        plain = self._plain(problem)
        names = target_of(self._target).variants(problem.node) if self._variants else (plain.algorithm,)
        choices: list[Choice | None] = [Choice(OWN, name) for name in names]
        own_calls = problem.node.op is scan and problem.vendor  # the kernels of a loop's body may be library calls
        made = [(c, recipe(problem.node, self._target, own_calls, c)) for c in choices]
        found = [(choice, each) for choice, each in made if each is not None]
        name = target_of(self._target).library(problem.node) if problem.vendor else None
        call = None if name is None else recipe(problem.node, self._target, True, Choice(name))
        return found if call is None else [*found, (None, call)]

    def _written(
        self, problem: Problem, recipes: Sequence[tuple[Choice | None, Recipe]], blobs: Mapping[str, Sequence[Blob]]
    ) -> Supplied | None:
        own, library = [], None
        for choice, made in recipes:
            path = self.write(made, [blob for symbol in made.kernels for blob in blobs[symbol]])
            if choice is None:
                library = Trial(library_of(made), path)
            else:
                own.append(Trial(choice, path))
        if not own and library is None:
            return None
        reference = own[0].path if own else library.path  # type: ignore[union-attr]
        default = None if library is None else recipe(problem.node, self._target, problem.vendor, None)
        called = default is not None and not default.kernels
        return Supplied(problem, reference, tuple(own), self._plain(problem), library, called)

    def _plain(self, problem: Problem) -> Choice:
        """The own way of a build without measurements."""
        if problem.node.op is not scan:
            return Choice(OWN)
        one, _ = loop_by_model(problem.node, self._target, vendor=problem.vendor)
        return one or Choice(OWN)

    def write(self, made: Recipe, code: Sequence[Blob]) -> Path:
        """Write a container into the folder."""
        self._number += 1
        path = self._folder / f"candidate{self._number}"
        path.write_bytes(pack_candidate(made.plan, made.operands, code, made.checks))
        return path


def library_of(made: Recipe) -> Choice:
    """The choice that a library call stands for: its library, no algorithm, and the bytes of its workspace."""
    [call] = made.plan.instructions
    assert isinstance(call, Gemm | GraphOp) and call.workspace is not None, "a library works in scratch memory"
    return Choice(call.provider, "", made.plan.buffers[call.workspace].bytes)
