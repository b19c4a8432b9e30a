"""Convolutions through cuDNN's operation graphs, by the Python package nvidia-cudnn-frontend.

cuDNN proposes plans, best first. The first one is used that is deterministic, accumulates in f32 without narrower
intermediate types, compiles nothing, and fits the workspace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import call
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import EnvironmentFault
from dslc.base.turns import Turn
from dslc.runtime.cuda.libraries.choices import Choice
from dslc.runtime.cuda.libraries.cublaslt import load_cublaslt, version_text

if TYPE_CHECKING:
    from dslc.runtime.cuda.libraries.checked_calls import Noted

_BUILDERS: Final = {"conv": "conv_fprop", "conv_dgrad": "conv_dgrad", "conv_wgrad": "conv_wgrad"}
_NAMES: Final = {"conv": ("image", "weight"), "conv_dgrad": ("loss", "filter"), "conv_wgrad": ("image", "loss")}
_TYPES: Final = {"f32": "FLOAT", "f16": "HALF", "bf16": "BFLOAT16"}
_OPERANDS: Final = (1, 2, 3)  # the ids of a graph's operands: two inputs, the output
#: Forbidden properties of a plan. Tensor cores compute f32 as TF32, which must have been requested.
_NEVER: Final = ("NONDETERMINISTIC", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "FFT", "WINOGRAD")


def load_cudnn() -> Any:
    """The package, with its library loaded. EnvironmentFault R205 if one of them is not installed."""
    load_cublaslt()  # cuDNN loads it by name, and ends the process if it does not find it
    try:
        import cudnn

        cudnn.backend_version()
    except (ImportError, OSError, RuntimeError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise EnvironmentFault(
            "R205",
            f"cuDNN cannot be loaded: {why}",
            help="pip install 'dslc[vendor]', or build with --providers own",
        ) from error
    return cudnn


@dataclass(frozen=True, slots=True)
class Problem:
    """``kind`` is that of ``GraphOp``; shapes are those in memory, with channels ``last`` or first; ``engine`` is -1
    for the library's choice; ``workspace``: its size in bytes; ``compute``: ``tf32`` if f32 factors may be rounded to
    TF32."""

    kind: str
    inputs: tuple[tuple[int, ...], tuple[int, ...]]
    out: tuple[int, ...]
    dtype: str
    last: bool
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    engine: int
    knobs: tuple[tuple[int, int], ...]
    workspace: int
    compute: str = "f32"

    def __str__(self) -> str:
        first, second = (f"{self.dtype}{list(s)}" for s in self.inputs)
        return f"{self.kind} of {first} and {second} to {self.dtype}{list(self.out)}"


def dims_of(shape: Sequence[int], last: bool) -> tuple[list[int], list[int]]:
    """Sizes and strides in cuDNN's order: batch, channels, rows, columns."""
    n, c, h, w = (shape[0], shape[3], shape[1], shape[2]) if last else shape
    return [n, c, h, w], [h * w * c, 1, w * c, c] if last else [c * h * w, h * w, w, 1]


def _destroy(module: Any, handles: list[Any]) -> None:
    """Destroy the handle, if it was made, once."""
    deque(map(module.destroy_handle, map(handles.pop, (-1,) * len(handles))), maxlen=0)


class Cudnn:
    """A handle of the library. ``module``: that of ``load_cudnn``, or a substitute in tests. The device's context must
    be current in every call."""

    def __init__(self, module: Any, noted: Noted) -> None:
        """``noted``: where the handle is noted."""
        self.module = module
        self._turn = Turn()  # the handle holds the stream of the call that is under way
        handles: list[Any] = []
        noted.append((partial(_destroy, module, handles), ()))
        handles.extend(map(call, (module.create_handle,)))
        self._handle = handles[0]

    @property
    def version(self) -> str:
        """The versions of the library and of its Python package: ``9.19.0 (1.28.0)``."""
        return f"{version_text(int(self.module.backend_version()))} ({self.module.__version__})"

    def convolution(self, problem: Problem, kept: Choice | None = None) -> Convolution:
        """A plan that is ready to run; ``kept``: a stored plan. EnvironmentFault R202 if the library has no permitted
        plan, or rejects the stored one."""
        return Convolution(self, problem, kept)

    def graph(self, **options: Any) -> Any:
        return self.module.pygraph(handle=self._handle, **options)

    def read(self, graph: Any, plan: bytes) -> None:
        """Load a stored plan into an empty graph."""
        graph.deserialize(self._handle, list(plan))

    def execute(self, graph: Any, operands: Mapping[int, int], workspace: int, stream: Any) -> None:
        with self._turn.hold() as scope, scope:
            self.module.set_stream(handle=self._handle, stream=int(stream))
            graph.execute(dict(operands), workspace, handle=self._handle)


class Convolution:
    """An operation graph of one convolution with its plan. ``engine``: the plan's name, such as ``eng62_k2=5``: the
    engine, and its knobs as numbers."""

    def __init__(self, library: Cudnn, problem: Problem, kept: Choice | None = None) -> None:
        self._library, self._problem = library, problem
        try:
            if kept is None:
                self._graph = self._described()
                self.engine = self._planned()
            else:
                self._graph, self.engine = self._read(kept), kept.name
        except (library.module.cudnnGraphNotSupportedError, RuntimeError, ValueError) as error:
            why = str(error).strip().splitlines()
            raise EnvironmentFault(
                "R202",
                f"cuDNN has no plan for {problem}: {why[0][:200] if why else repr(error)}",
                place="cuDNN",
                help="build with --providers own",
            ) from error

    def choice(self) -> Choice:
        """The plan, to be stored."""
        return Choice(self.engine, bytes(self._graph.serialize()))

    def _read(self, kept: Choice) -> Any:
        graph = self._library.graph()
        self._library.read(graph, kept.data)
        if graph.get_workspace_size() > self._problem.workspace:
            raise RuntimeError("the stored plan needs a larger workspace")
        return graph

    def _described(self) -> Any:
        module, p = self._library.module, self._problem
        kind, f32 = getattr(module.data_type, _TYPES[p.dtype]), module.data_type.FLOAT
        graph = self._library.graph(io_data_type=kind, intermediate_data_type=f32, compute_data_type=f32)
        operands = []
        for number, name, shape in zip(_OPERANDS, _NAMES[p.kind], p.inputs):
            dim, stride = dims_of(shape, p.last)
            operands.append(graph.tensor(dim=dim, stride=stride, data_type=kind, name=name, uid=number))
        pads = {"pre_padding": list(p.pad), "post_padding": list(p.pad)}
        out = getattr(graph, _BUILDERS[p.kind])(
            **dict(zip(_NAMES[p.kind], operands)), **pads, stride=list(p.stride), dilation=list(p.dilation)
        )
        dim, stride = dims_of(p.out, p.last)
        out.set_output(True).set_data_type(kind).set_dim(dim).set_stride(stride).set_uid(_OPERANDS[-1])
        return graph

    def _planned(self) -> str:
        """Builds the first permitted plan, or the named one, and returns its name."""
        module, p, graph = self._library.module, self._problem, self._graph
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([module.heur_mode.A, module.heur_mode.FALLBACK])
        notes = [getattr(module.numerical_note, n) for n in _NEVER]
        if p.dtype == p.compute == "f32":
            notes.append(module.numerical_note.TENSOR_CORE)
        graph.deselect_numeric_notes(notes)
        graph.deselect_behavior_notes([module.behavior_note.RUNTIME_COMPILATION])
        graph.deselect_workspace_greater_than(p.workspace)
        names = [graph.get_plan_name_at_index(i) for i in range(graph.get_execution_plan_count())]
        wanted = f"eng{p.engine}" + "".join(f"_k{knob}={value}" for knob, value in p.knobs)
        for index, name in enumerate(names):
            if p.engine >= 0 and name != wanted:
                continue
            try:
                graph.build_plan_at_index(index)
            except (module.cudnnGraphNotSupportedError, RuntimeError):
                continue  # forbidden, or unsupported on this GPU
            if graph.get_workspace_size() <= p.workspace:
                return str(name)
        known = f"none of its {len(names)} plans satisfies the rules" if p.engine < 0 else f"it has no plan {wanted}"
        raise RuntimeError(known)

    def run(self, first: int, second: int, out: int, workspace: int, stream: Any) -> None:
        """Enqueue the convolution. ``workspace``: the address of the problem's workspace."""
        try:
            operands = dict(zip(_OPERANDS, (first, second, out)))
            self._library.execute(self._graph, operands, workspace, stream)
        except RuntimeError as error:
            raise EnvironmentFault("R206", f"cuDNN failed in {self._problem}: {error}", place="cuDNN") from error
