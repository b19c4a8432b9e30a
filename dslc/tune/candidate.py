"""A candidate: one node as a plan of its own with its code, in one container that a worker loads.

Each operand and each scratch block has its own bytes in the plan, so the worker may place each anywhere. A container's
header holds the operands' contents (``Operand``); its blobs are the plan and the code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import ArtifactError
from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.codegen.lowering_cache import lowered
from dslc.compiler.codegen.targets import target_of
from dslc.compiler.cost import MATRIX_KINDS, kind
from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Value
from dslc.compiler.ir.program import ALIGNMENT, MemoryPlan, Place, Program
from dslc.compiler.ir.scan import body_of, consts_of, scan
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.plan.select_kernels import loop_by_model
from dslc.runtime.artifact.container import Blob, Container, pack, unpack
from dslc.runtime.artifact.loops import unrolled
from dslc.runtime.artifact.plan import Plan
from dslc.runtime.artifact.reserved import STEP_BLOCK

if TYPE_CHECKING:
    from dslc.compiler.ir.choice import Choice
    from dslc.compiler.toolchain.kernel_compiler import KernelCompiler

_PLAN: Final = "plan"
_DAMPED: Final = 0.5  # the gain of a matrix of normal values, in loops
_ANY: Final = {"u8": (0, 256), "b1": (0, 2)}  # the range of integers if the op states none


@dataclass(frozen=True, slots=True)
class Operand:
    """The values of an input: integers of ``low`` to ``high`` (not included), or normal floats times ``scale``;
    ``positive``: their absolute values, so that roots, logarithms and quotients of them are ordinary numbers.
    ``bounded``: uniform floats of 0.25 to 0.75 instead, whose products stay below 1 and whose quotients below 3."""

    low: int
    high: int
    positive: bool
    scale: float = 1.0
    bounded: bool = False


@dataclass(frozen=True, slots=True)
class Checks:
    """How the results of a problem are compared. ``rounds``: the 16-bit float type to which it rounds values that it
    computes further with, so that results of wider types differ as much; empty if there is none. ``finite``: the
    reference's results must be finite: of a loop that grows without bound no result could be compared."""

    rounds: str = ""
    finite: bool = False


@dataclass(frozen=True)
class Recipe:
    """A candidate before its code is compiled. ``kernels``: descriptions by symbol."""

    plan: Plan
    kernels: Mapping[str, Any]
    operands: tuple[Operand, ...]
    target: str
    checks: Checks = Checks()

    def blobs(self, compiler: KernelCompiler) -> list[Blob]:
        """The compiled code."""
        return target_of(self.target).blobs(self.kernels, compiler) if self.kernels else []

    def packed(self, compiler: KernelCompiler) -> bytes:
        """The bytes of the container."""
        return pack_candidate(self.plan, self.operands, self.blobs(compiler), self.checks)


def recipe(node: Node, target: str, vendor: bool, choice: Choice | None) -> Recipe | None:
    """The candidate that computes a node as ``choice`` says; None if there is no kernel. BuildError if it is not
    possible."""
    values = dict.fromkeys(node.inputs)
    sources = {v: Input(f"x{i}", Kind.DATA, v.type) for i, v in enumerate(values)}
    alone = Node(node.op, tuple(sources[v].value for v in node.inputs), node.types, node.attrs)
    if node.op is scan and (choice is None or not choice.algorithm):
        return _steps(node, alone, tuple(sources.values()), target, vendor)
    lower = target_of(target, vendor).lower
    launches = lower(alone, choice) if node.op is scan else lowered(alone, target, vendor, choice)
    if launches is None:
        return None
    sizes = {x.number: x.bytes for launch in launches for x in launch.scratch}
    graph = Graph(tuple(sources.values()), (alone,), {f"result.y{i}": v for i, v in enumerate(alone.outputs)})
    program = Program(
        "predict",
        {},
        graph,
        kernels={alone: launches},
        scratch={alone: tuple(sizes[i] for i in range(len(sizes)))},
        schedule=(alone,),
        memory=_apart(graph, alone, tuple(sizes[i] for i in range(len(sizes)))),
        target=target,
        vendor=vendor,
    )
    return _recipe(program, node)


def _steps(node: Node, alone: Node, sources: tuple[Input, ...], target: str, vendor: bool) -> Recipe:
    """A loop as the kernels of its body, which run once for each step."""
    _, body = loop_by_model(alone, target, vendor=vendor)
    assert body.memory is not None, "the body is planned"
    room = (body.memory.work_bytes,) if body.memory.work_bytes else ()
    graph = Graph(sources, (alone,), {f"result.y{i}": v for i, v in enumerate(alone.outputs)})
    program = Program(
        "predict", {}, graph, scratch={alone: room} if room else {}, schedule=(alone,),
        memory=_apart(graph, alone, room), target=target, vendor=vendor, loops={alone: body},
    )  # fmt: skip
    return _recipe(program, node)


def _recipe(program: Program, node: Node) -> Recipe:
    kernels: dict[str, Any] = {}
    plan = plan_of(program, kernels)
    values = dict.fromkeys(node.inputs)
    operands = tuple(_operand(node, node.inputs.index(v)) for v in values)
    return Recipe(plan, kernels, operands, program.target, _checks(node))


def _checks(node: Node) -> Checks:
    """Of a loop: 16-bit values of its body are carried, or are factors of products."""
    if node.op is not scan:
        return Checks()
    types = {v.type.dtype for each in body_of(node.attrs).nodes for v in (*each.inputs, *each.outputs)}
    return Checks(next((each.value for each in (DType.BF16, DType.F16) if each in types), ""), True)


def _apart(graph: Graph, node: Node, scratch: Sequence[int]) -> MemoryPlan:
    """Bytes of its own for each value and each scratch block."""
    places: dict[Value, Place] = {}
    end = STEP_BLOCK
    for value in (*(source.value for source in graph.inputs), *node.outputs):
        places[value] = Place("io", end)
        end += -(-value.type.bytes // ALIGNMENT) * ALIGNMENT + ALIGNMENT
    blocks, work = [], 0
    for size in scratch:
        blocks.append(Place("work", work))
        work += -(-size // ALIGNMENT) * ALIGNMENT + ALIGNMENT
    results = {name: places[value] for name, value in graph.outputs.items()}
    return MemoryPlan(places, results, (), end, work, work, {node: tuple(blocks)})


def _operand(node: Node, index: int) -> Operand:
    dtype = node.inputs[index].type.dtype
    if dtype.is_float and node.op is scan:
        return _operand_of_loop(node, index)
    if dtype.is_float:
        return Operand(0, 0, kind(node) not in MATRIX_KINDS)
    stated = node.op.index_range(node, index)
    low, high = stated if stated is not None else _ANY.get(dtype.value, (1, 2))
    assert isinstance(high, int), "sizes are ints"
    return Operand(low, max(low + 1, high), False)


def _operand_of_loop(node: Node, index: int) -> Operand:
    """Values of which each step makes values that are hardly larger: the steps of a loop neither grow without bound nor
    reach the ends of its functions. Matrices, whose terms are added up, have both signs."""
    shape = node.inputs[index].type.ints
    if index < consts_of(node.attrs) and len(shape) > 1:
        return Operand(0, 0, False, _DAMPED / max(1, max(shape)) ** 0.5)
    return Operand(0, 0, True, bounded=True)


def pack_candidate(plan: Plan, operands: Sequence[Operand], code: Sequence[Blob], checks: Checks = Checks()) -> bytes:
    """The bytes of a container."""
    header = {"operands": [asdict(operand) for operand in operands], "checks": asdict(checks)}
    return pack(header, [Blob(_PLAN, "plan", plan.encode()), *code])


@dataclass(frozen=True)
class Candidate:
    """A container that was read. ``code``: blobs by name."""

    plan: Plan
    operands: tuple[Operand, ...]
    code: Mapping[str, memoryview]
    checks: Checks


def read_candidate(data: bytes, place: str) -> Candidate:
    """The candidate in the bytes of a container. ArtifactError R301 if they are damaged."""

    def check(header: dict[str, Any]) -> None:
        kinds = {"blobs": list, "operands": list, "checks": dict}
        if not all(isinstance(header.get(name), kind) for name, kind in kinds.items()):
            raise ArtifactError("R301", "this is no candidate", place=place)

    found: Container = unpack(data, check, place=place)
    code = {blob.name: memoryview(blob.data) for blob in found.blobs.values()}
    plan = unrolled(Plan.decode(bytes(code.pop(_PLAN)), place=place))
    operands = tuple(Operand(**each) for each in found.header["operands"])
    return Candidate(plan, operands, code, Checks(**found.header["checks"]))
