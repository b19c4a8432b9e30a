"""Builds a case: the model is checked, then its inputs and results get the dtype of the run, gradients are added, and
the passes of a build follow. The result is one file with the plan and its code.

Independent kernels may run concurrently, as in any build: a gradient here depends on its seed alone.

A model in a file keeps its inputs and results in f32 when it computes in 16 bits. Here they have 16 bits too, as
between two ops of a larger model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dslc.base.cache import Cache
from dslc.compiler.artifact.plan import constants_of, plan_of
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cpu.levels import ALL, LEVELS
from dslc.compiler.codegen.targets import TARGETS, target_of
from dslc.compiler.cost import MATRIX_KINDS, kind, operations
from dslc.compiler.ir.build import Build, Precision
from dslc.compiler.ir.graph import Graph, Input, Kind, order
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.types import DType
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.gradient.differentiate import differentiate
from dslc.compiler.passes.order import PIPELINE
from dslc.compiler.passes.runner import run_passes
from dslc.compiler.toolchain.kernel_compiler import KernelCompiler
from dslc.runtime.artifact.container import Blob, pack, unpack
from dslc.runtime.artifact.instructions import EventRecord, EventWait, Reference
from dslc.runtime.artifact.plan import Plan
from dslc.runtime.cpu.levels import machine_level
from op_sweep.case import GRADIENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from op_sweep.case import Run

_SEED: Final = "seed"


@dataclass(frozen=True)
class _Throughout(Precision):
    """Inputs and results have the dtype that is computed."""

    @property
    def boundary(self) -> DType:
        return self.compute


@dataclass(frozen=True)
class Made:
    """A case as built. ``header``: bytes of the regions ``io`` and ``work``, the least bytes that inputs and results
    move, the operations of products, seconds of the roof, and the ops that run through numpy."""

    plan: Plan
    header: Mapping[str, Any]
    blobs: Mapping[str, bytes]


@dataclass(frozen=True)
class Recipe:
    """A case before its code is compiled. ``kernels``: descriptions by symbol."""

    target: str
    level: str
    plan: Plan
    header: Mapping[str, Any]
    kernels: Mapping[str, Any]
    constants: Mapping[str, bytes]


def level_of(target: str) -> str:
    """The level of a CPU's code: this machine's."""
    return machine_level(tuple(LEVELS)) if target == "cpu" else ALL


def recipe(run: Run, target: str, provider: str, level: str, folder: Path) -> Recipe:
    """A run after all passes. Raises what a build raises."""
    source = folder / f"{run.file}.nn"
    source.write_text(run.case.source, encoding="utf-8")
    try:
        checked = check_file(source, "Case", {})
    finally:
        source.unlink()
    dtype = DType(run.dtype)
    params = DType.F32 if dtype is DType.F16 else dtype  # there are none: a case's parameters are inputs
    options = Build(
        target=target, provider=provider, precision=_Throughout(dtype, params), mirror="never", streams=Options.streams
    )
    program, _ = run_passes(Program("predict", {}, _graph(checked.graph, run), target=target), options, PIPELINE)
    kernels: dict[str, Any] = {}
    plan = plan_of(program, kernels, level)
    return Recipe(target, level, plan, _header(program, plan), kernels, constants_of(program))


def written(recipes: Mapping[str, Recipe], folder: Path) -> dict[str, str]:
    """The files of runs, whose kernels are compiled together. Raises what a compiler raises."""
    compiler = KernelCompiler(Cache.open(), processes=1)
    found = {}
    if all(each.target == "cpu" for each in recipes.values()):
        code = {name: _code(each, each.kernels, compiler) for name, each in recipes.items()}
    else:  # each kernel is a blob of its own
        [target] = {each.target for each in recipes.values()}
        kernels = {symbol: kernel for each in recipes.values() for symbol, kernel in each.kernels.items()}
        blobs = target_of(target).blobs(kernels, compiler) if kernels else []
        code = {name: [blob for blob in blobs if blob.name.partition(".")[0] in each.kernels]
                for name, each in recipes.items()}  # fmt: skip
    for name, each in recipes.items():
        constants = [Blob(blob, "constant", data) for blob, data in sorted(each.constants.items())]
        path = folder / f"{name.replace(' ', '_').replace('/', '-')}.case"
        path.write_bytes(pack(dict(each.header), [Blob("plan", "plan", each.plan.encode()), *code[name], *constants]))
        found[name] = str(path)
    return found


def _code(made: Recipe, kernels: Mapping[str, Any], compiler: KernelCompiler) -> list[Blob]:
    return list(target_of(made.target, level=made.level).blobs(kernels, compiler)) if kernels else []


def read(path: Path) -> Made:
    """The content of a file that ``build`` made."""

    def check(header: dict[str, Any]) -> None:
        assert isinstance(header.get("blobs"), list), path

    found = unpack(path.read_bytes(), check, place=str(path))
    blobs = {blob.name: bytes(blob.data) for blob in found.blobs.values()}
    header = {name: value for name, value in found.header.items() if name != "blobs"}
    return Made(Plan.decode(blobs.pop("plan"), place=str(path)), header, blobs)


def _graph(graph: Graph, run: Run) -> Graph:
    """Results, and with gradients those of the case's inputs: parameters and buffers are inputs, too."""
    outputs = {name: value for name, value in graph.outputs.items() if name.startswith("result.")}
    inputs = {i.name: i for i in graph.inputs}
    wanted = {name: inputs[name] for name in run.case.inputs}
    given: dict[Any, Any] = {}
    fresh: list[Input] = []
    for name, source in inputs.items():
        data = source.kind in (Kind.PARAM, Kind.BUFFER, Kind.DATA)
        new = Input(name, Kind.DATA, source.value.type, source.span) if data else source
        given[source.value] = new.value
        fresh.append(new)
    values = Graph(graph.inputs, order(outputs.values()), outputs).rewrite(lambda node: node.reading(given)).outputs
    values = {name: given.get(value, value) for name, value in values.items()}
    results = dict(values)
    if run.direction == GRADIENT:
        wrt = {name: given[source.value] for name, source in wanted.items() if name in run.case.wrt}
        found: dict[str, Any] = {}
        floats = [value for value in values.values() if value.type.dtype is DType.FLOAT]
        for number, value in enumerate(floats):
            seed = Input(f"{_SEED}{number}", Kind.DATA, value.type)
            fresh.append(seed)
            for name, x in wrt.items():
                gradient = differentiate(graph, value, [x], seed.value).get(x)
                if gradient is not None:
                    found[name] = gradient if name not in found else _sum(found[name], gradient)
        assert found.keys() == wrt.keys(), f"{run.name}: no gradient of {wrt.keys() - found.keys()}"
        results |= {f"result.d_{name}": value for name, value in found.items()}
    nodes = order(results.values())
    read = {value for node in nodes for value in node.inputs} | set(results.values())
    return Graph(tuple(i for i in fresh if i.value in read), nodes, results)


def _sum(x: Any, y: Any) -> Any:
    from dslc.compiler.ir.graph import Phase
    from dslc.compiler.ir.op import OPS, Builder

    return Builder(name="seeds", phase=Phase.BACKWARD)(OPS["add"], x, y)


def _header(program: Program, plan: Plan) -> dict[str, Any]:
    assert program.memory is not None
    device = TARGETS[program.target].device
    moved = sum(plan.buffers[port.buffer].bytes for port in (*plan.inputs, *plan.outputs))
    work = [node for node in program.graph.nodes if kind(node) in MATRIX_KINDS]
    arithmetic = sum(operations(node) / device.matrix(node.types[0].dtype) for node in work)
    working = [i for i in plan.instructions if not isinstance(i, EventRecord | EventWait)]
    numpy_ops = [i.op for i in plan.instructions if isinstance(i, Reference)]
    return {
        "io": program.memory.io_bytes, "work": program.memory.work_bytes, "moved": moved,
        "operations": sum(operations(node) for node in work), "roof": max(moved / device.bandwidth, arithmetic),
        "numpy": numpy_ops, "kernels": len(working),
    }  # fmt: skip
