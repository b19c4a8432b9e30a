"""Convolutions and attention through cuDNN's operation graphs, by the Python package nvidia-cudnn-frontend.

An algorithm is cuDNN's name of a plan: an engine and its knobs, ``eng62_k2=5_k13=0``. cuDNN proposes plans, best first,
in three modes of its heuristic. Without a name, the first one is used that is deterministic, accumulates in f32 without
narrower intermediate types, compiles nothing unless all plans do, and fits the workspace. Of a convolution whose dtype
tensor cores multiply, it is the first one on tensor cores, if there is any. A named plan is made from its engine and
knobs, in a third of a millisecond. Plans of attention are compiled, which takes about a second for each.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import call
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from dslc.base.errors import EnvironmentFault
from dslc.base.turns import Turn
from dslc.runtime.artifact.instructions import Gemm, GraphOp
from dslc.runtime.artifact.plan import Buffer
from dslc.runtime.cuda.libraries.cublaslt_abi import load_cublaslt
from dslc.runtime.cuda.libraries.cudnn_problems import TYPES, Problem, problem_of
from dslc.runtime.cuda.libraries.library import Installed, Library, Way, missing, unknown, version_text

if TYPE_CHECKING:
    from dslc.runtime.cuda.libraries.checked_calls import Noted

_UNREPEATABLE: Final = "NONDETERMINISTIC"
_PLAN: Final = re.compile(r"eng(0|[1-9][0-9]{0,9})((?:_k(?:0|[1-9][0-9]{0,9})=-?[0-9]{1,10})*)", re.ASCII)
#: cudnnBackendKnobType_t: the knobs' numbers in plan names -> their names in the package, which numbers them otherwise.
#: The package has no name for the other, deprecated ones.
_KNOBS: Final = {
    1: "SWIZZLE", 2: "TILE_SIZE", 4: "EDGE", 11: "MULTIPLY", 12: "SPLIT_K_BUF", 13: "TILEK", 14: "STAGES",
    15: "REDUCTION_MODE", 17: "SPLIT_K_SLC", 18: "IDX_MODE", 23: "SPECFILT", 24: "KERNEL_CFG", 25: "WORKSPACE",
    27: "TILE_CGA_M", 28: "TILE_CGA_N", 29: "BLOCK_SIZE", 30: "OCCUPANCY", 31: "ARRAY_SIZE_PER_THREAD",
    33: "SPLIT_COLS", 34: "TILE_ROWS", 35: "TILE_COLS", 36: "LOAD_SIZE", 37: "CTA_COUNT", 38: "STREAM_K",
    39: "SPLIT_P_SLC", 40: "TILE_M", 41: "TILE_N", 42: "WARP_SPEC_CFG", 43: "SWAP_AB",
}  # fmt: skip


def load_cudnn() -> Any:
    """The package, with its library loaded. EnvironmentFault R205 if one of them is not installed."""
    load_cublaslt()  # cuDNN loads it by name, and ends the process if it does not find it
    try:
        import cudnn

        cudnn.backend_version()
    except (ImportError, OSError, RuntimeError) as error:
        raise missing("cuDNN", error) from error
    return cudnn


def plan_name(engine: int, knobs: Sequence[tuple[int, int]]) -> str:
    """``eng62_k2=5``, cuDNN's name of a plan; empty for engine -1, which is cuDNN's choice."""
    return f"eng{engine}" + "".join(f"_k{knob}={value}" for knob, value in knobs) if engine >= 0 else ""


def _same_plan(one: str, other: str) -> bool:
    """True if two names say one engine and the same knobs; cuDNN's order of the knobs varies."""
    return sorted(one.split("_")) == sorted(other.split("_"))


def _destroy(module: Any, handles: list[Any]) -> None:
    """Destroy the handle, if it was made, once."""
    deque(map(module.destroy_handle, map(handles.pop, (-1,) * len(handles))), maxlen=0)


class Cudnn(Library[Problem]):
    """A handle of the library. ``module``: that of ``load_cudnn``, or a substitute in tests."""

    name: ClassVar = "cudnn"
    title: ClassVar = "cuDNN"
    packages: ClassVar = ("nvidia-cudnn-frontend",)

    def __init__(self, module: Any, noted: Noted) -> None:
        self.module = module
        self._turn = Turn()  # the handle holds the stream of the call that is under way
        self._declines = (module.cudnnGraphNotSupportedError, RuntimeError, ValueError)
        handles: list[Any] = []
        noted.append((partial(_destroy, module, handles), ()))
        handles.extend(map(call, (module.create_handle,)))
        self._handle = handles[0]

    @classmethod
    def open(cls, noted: Noted) -> Self:
        return cls(load_cudnn(), noted)

    @classmethod
    def installed(cls) -> Installed:
        module = load_cudnn()
        frontend = (cls.packages[0], str(module.__version__))
        return Installed(version_text(int(module.backend_version())), "libcudnn.so", (frontend,))

    @property
    def version(self) -> str:
        return version_text(int(self.module.backend_version()))

    def problem(
        self, call: Gemm | GraphOp, buffers: Sequence[Buffer], places: Sequence[int], workspace: int
    ) -> Problem:
        if not isinstance(call, GraphOp):
            raise unknown("a product by cudnn")
        return problem_of(call, buffers, workspace, plan_name(call.engine, call.knobs))

    def default(self, problem: Problem) -> Way:
        made = self.prepare(replace(problem, algorithm=""))
        return made.algorithm, made.workspace

    def candidates(self, problem: Problem, limit: int, deterministic: bool) -> list[Way]:
        asked = replace(problem, workspace=limit, algorithm="")
        found: dict[str, int] = {}
        with self._refusing(asked):
            for made in self._of_each_mode(asked, deterministic):
                found.setdefault(made.algorithm, made.workspace)
        if not found:
            raise self.refused(asked, "has no plan")
        return list(found.items())

    def prepare(self, problem: Problem) -> Planned:
        with self._refusing(problem):
            return self._named(problem) if problem.algorithm else self._chosen(problem)

    @contextmanager
    def _refusing(self, problem: Problem) -> Iterator[None]:
        """R202 with what the package says, if it raises."""
        try:
            yield
        except self._declines as error:
            why = (str(error).strip() or repr(error)).splitlines()[0][:200]
            raise self.refused(problem, why if problem.algorithm else f"has no plan ({why})") from error

    def _chosen(self, problem: Problem) -> Planned:
        """The first plan that cuDNN proposes and the rules permit; of the problem's ``units`` before others. Mode A of
        cuDNN 9.19 names one without tensor cores first for 7 of 791 convolutions of nets of images and volumes."""
        for made in self._of_each_mode(problem, deterministic=True, units=problem.units) if problem.units else ():
            return made
        for made in self._of_each_mode(problem, deterministic=True):
            return made
        raise RuntimeError("none of its plans satisfies the rules")

    def _named(self, problem: Problem) -> Planned:
        """The plan of an engine and its knobs, for which cuDNN proposes nothing."""
        match = _PLAN.fullmatch(problem.algorithm)
        if match is None:
            raise ValueError("that is no name of a plan")
        pairs = [word.split("=") for word in match[2].split("_k")[1:]]
        kinds = [getattr(self.module.knob_type, _KNOBS.get(int(knob), ""), None) for knob, _ in pairs]
        if None in kinds:  # the package cannot say them
            for made in self._of_each_mode(problem, deterministic=False):
                return made
            raise RuntimeError("it proposes no such plan that fits the workspace")
        graph = self._described(problem)
        graph.create_execution_plan(int(match[1]), {kind: int(value) for kind, (_, value) in zip(kinds, pairs)})
        if hasattr(graph, "_cpp_plans_created"):
            graph._cpp_plans_created = True  # else the package asks for proposals too, which takes 20 ms
        self._deselect(graph, problem, deterministic=False)
        name = str(graph.get_plan_name_at_index(0))
        if not _same_plan(name, problem.algorithm):
            raise RuntimeError(f"it makes {name} of that")
        graph.build_plan_at_index(0)
        if (need := int(graph.get_workspace_size())) > problem.workspace:
            raise RuntimeError(f"it needs a workspace of {need} bytes, not {problem.workspace}")
        return Planned(self, problem, graph, problem.algorithm, need)

    def _of_each_mode(self, problem: Problem, deterministic: bool, units: Sequence[str] = ()) -> Iterator[Planned]:
        """As ``_proposed``, in every mode. Each is asked alone, after the plans of the modes before it: A takes 13 ms,
        B 67, the fallback 38, whose plans are the slowest. Also, of several modes the package takes plans for one that
        differ only in a knob without a name. RuntimeError with cuDNN's first reason if no mode proposes any."""
        modes = self.module.heur_mode
        refusals: list[str] = []
        for mode in (modes.A, modes.B, modes.FALLBACK):
            try:
                yield from self._proposed(problem, mode, deterministic, units)
            except self.module.cudnnGraphNotSupportedError as error:  # it proposes nothing in this mode
                refusals.append(str(error))
        if len(refusals) == 3:
            raise RuntimeError(refusals[0])

    def _proposed(
        self, problem: Problem, mode: Any, deterministic: bool, units: Sequence[str] = ()
    ) -> Iterator[Planned]:
        """The plans that cuDNN proposes in a mode and the rules permit, best first, or the named one; each is valid
        until the next. With ``units``, only plans with these numerical notes."""
        graph = self._described(problem)
        graph.create_execution_plans([mode])
        self._deselect(graph, problem, deterministic)
        graph.select_numeric_notes([getattr(self.module.numerical_note, note) for note in units])
        for index in range(graph.get_execution_plan_count()):
            name = str(graph.get_plan_name_at_index(index))
            if not _PLAN.fullmatch(name):
                continue  # one of the package's own kernels, which is compiled from Python
            if problem.algorithm and not _same_plan(name, problem.algorithm):
                continue
            try:
                graph.build_plan_at_index(index)
            except (self.module.cudnnGraphNotSupportedError, RuntimeError):
                continue  # forbidden, or unsupported on this GPU
            if (need := int(graph.get_workspace_size())) <= problem.workspace:
                yield Planned(self, problem, graph, name, need)

    def _described(self, problem: Problem) -> Any:
        module = self.module
        kind, f32 = getattr(module.data_type, TYPES[problem.dtype]), module.data_type.FLOAT
        graph = self.graph(io_data_type=kind, intermediate_data_type=f32, compute_data_type=f32)
        problem.describe(module, graph)
        graph.validate()
        graph.build_operation_graph()
        return graph

    def _deselect(self, graph: Any, problem: Problem, deterministic: bool) -> None:
        """Forbid plans that compute something else or compile; with ``deterministic``, those that differ each time."""
        notes = [*problem.forbidden, *([_UNREPEATABLE] if deterministic else [])]
        graph.deselect_numeric_notes([getattr(self.module.numerical_note, note) for note in notes])
        if not problem.compiles:
            graph.deselect_behavior_notes([self.module.behavior_note.RUNTIME_COMPILATION])
        graph.deselect_workspace_greater_than(problem.workspace)

    def graph(self, **options: Any) -> Any:
        """An empty graph."""
        return self.module.pygraph(handle=self._handle, **options)

    def execute(self, graph: Any, operands: Mapping[int, int], workspace: int, stream: Any) -> None:
        """Enqueue a graph on a stream."""
        with self._turn.hold() as scope, scope:
            self.module.set_stream(handle=self._handle, stream=int(stream))
            graph.execute(dict(operands), workspace, handle=self._handle)


class Planned:
    """An operation graph of one problem with its plan. ``algorithm``: the plan's name; ``workspace``: the bytes
    that it needs."""

    def __init__(self, library: Cudnn, problem: Problem, graph: Any, algorithm: str, workspace: int) -> None:
        self._library, self._problem, self.built = library, problem, graph
        self.algorithm, self.workspace = algorithm, workspace

    def run(self, operands: Sequence[int], workspace: int, stream: Any) -> None:
        try:
            self._library.execute(self.built, self._problem.addresses(operands), workspace, stream)
        except RuntimeError as error:
            raise EnvironmentFault("R206", f"cuDNN failed in {self._problem}: {error}", place="cuDNN") from error
