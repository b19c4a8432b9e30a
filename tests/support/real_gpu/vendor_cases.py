"""Contractions and attention for a machine that cannot compile: our kernels, and the library's call as a plan of one
instruction.

``describe`` runs where CUDA can be compiled, ``Contraction`` on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from real_gpu.kernel_store import Reader, Writer, arguments
from real_gpu.launcher import Gpu

from dslc.runtime.artifact.instructions import Gemm, GraphOp

if TYPE_CHECKING:
    from dslc.compiler.ir.graph import Node
    from dslc.runtime.cuda.libraries.libraries import Libraries
    from dslc.runtime.cuda.libraries.library import Way


def node_of(op: str, shapes: Sequence[Sequence[int]], dtype: str, **attrs: Any) -> Node:
    from dslc.compiler.ir.graph import Input, Kind
    from dslc.compiler.ir.op import Builder
    from dslc.compiler.ir.types import DType, TensorType
    from dslc.compiler.ops import registry

    kinds = [TensorType(DType(dtype), tuple(s)) for s in shapes]
    values = [Input(f"x{i}", Kind.DATA, t).value for i, t in enumerate(kinds)]
    return Builder(name="case").node(registry.ops()[op], *values, **attrs)


def convolution(
    kind: str, x: Sequence[int], w: Sequence[int], dtype: str, *, last: bool | None = None, **attrs: Any
) -> Node:
    """``x`` and ``w`` with channels first; the node has them ``last``, by default where its dtype has 16 bits."""
    from dslc.compiler.ops.spatial.channels_last import to_last

    axes = len(x) - 2
    geometry = {"stride": (1,) * axes, "pad": (0,) * axes, "dilation": (1,) * axes, "groups": x[1] // w[1], **attrs}
    y = node_of("conv", (x, w), dtype, **geometry).types[0].ints
    first, second, size = {"conv": (x, w, None), "conv_dgrad": (y, w, x), "conv_wgrad": (x, y, w)}[kind]
    if size is not None:
        geometry["size"] = tuple(size[2:])
    if not (dtype != "f32" if last is None else last):
        return node_of(kind, (first, second), dtype, **geometry)
    shapes = [[s[a] for a in to_last(len(s))] for s in (first, second)]
    return node_of(f"{kind}_last", shapes, dtype, **geometry)


def describe(store: Writer, name: str, node: Node, **more: Any) -> dict[str, Any] | None:
    """A case of the store; None for a node that no library takes."""
    from dslc.compiler.codegen.cuda.libraries.registry import callable_library, chosen_call
    from dslc.compiler.codegen.cuda.lower import lower
    from dslc.compiler.codegen.target import LibraryCall
    from dslc.compiler.ir.choice import Choice
    from dslc.runtime.artifact.plan import Buffer, Plan

    library = callable_library(node)
    if library is None:
        return None
    call = chosen_call(node, Choice(library))
    assert isinstance(call.spec, LibraryCall)
    buffers, end = [], 0
    operands = (*node.inputs, *node.outputs)
    dtypes = [v.type.dtype.value for v in operands]
    for dtype, shape in zip(dtypes, call.spec.shapes, strict=True):
        buffers.append(Buffer("work", end, dtype, shape))
        end += -(-buffers[-1].bytes // 256) * 256
    buffers.append(Buffer("work", end, "u8", (call.scratch[0].bytes,)))
    plan = Plan(
        tuple(buffers), (), (), (), (), (call.spec.instruction(range(len(operands)), len(operands), 0),), (name,)
    )
    launches = lower(node) or []
    places: dict[Any, int] = {v: i for i, v in enumerate(operands)}
    scratch = sorted({s for launch in launches for s in launch.scratch}, key=lambda s: s.number)
    places |= {s: len(operands) + i for i, s in enumerate(scratch)}
    case = {
        "name": name,
        "plan": store.put(plan.encode()),
        "scratch": [s.bytes for s in scratch],
        "launches": store.launches(launches, places),
        **more,
    }
    store.cases.append(case)
    return case


class Contraction:
    """A case with its memory on the GPU. ``addresses``: of all inputs and results."""

    def __init__(self, gpu: Gpu, store: Reader, case: dict[str, Any], libraries: Libraries) -> None:
        from dslc.runtime.artifact.plan import Plan

        self._gpu, self._libraries = gpu, libraries
        self.case = case
        self.plan = Plan.decode(store.get(case["plan"]))
        *operands, workspace = self.plan.buffers
        self.operands = operands
        self._held = ExitStack()
        self.addresses = [self._block(b.bytes) for b in operands]
        self._room = self._block(workspace.bytes)
        self._scratch = [self._block(size) for size in case["scratch"]]
        blocks = [*self.addresses, *self._scratch]
        self._own = [
            (gpu.kernel(x["symbol"], store.cubin(x["symbol"])), x, arguments(x, blocks)) for x in case["launches"]
        ]

    def _block(self, size: int) -> int:
        address = self._gpu.allocate(size)
        self._held.callback(self._gpu.free, address)
        return address

    def own(self) -> None:
        for kernel, x, given in self._own:
            self._gpu.launch(kernel, x["grid"], x["block"], x["shared"], given)

    def vendor(self, algorithm: str = "") -> Callable[[], None]:
        """The library's call, ready to be enqueued, by the algorithm of this text or by the library's choice."""
        places = [*self.addresses, self._room]
        call = self._call
        if isinstance(call, Gemm):
            call = replace(call, algorithm=algorithm.encode())
        elif algorithm:
            engine, *knobs = algorithm.removeprefix("eng").split("_k")
            pairs = [tuple(map(int, knob.split("="))) for knob in knobs]
            call = replace(call, engine=int(engine), knobs=tuple((knob, value) for knob, value in pairs))
        run = self._libraries.call(call, self.plan.buffers, places.__getitem__)
        return lambda: run.enqueue(self._gpu.stream)

    def candidates(self) -> list[Way]:
        """The reproducible ways that fit the case's workspace."""
        places = [*self.addresses, self._room]
        room = self.plan.buffers[-1].bytes - 256
        return self._libraries.candidates(self._call, self.plan.buffers, places.__getitem__, room, True)

    @property
    def _call(self) -> Gemm | GraphOp:
        [call] = self.plan.instructions
        assert isinstance(call, Gemm | GraphOp)
        return call

    def close(self) -> None:
        self._held.close()
