"""Pointwise chains, normalisations and softmax on the CPU: our kernels and PyTorch's in turns, with all threads.

    python benchmarks/cpu_regions.py --torch ~/torchenv/bin/python [--only TEXT] [--rounds N] [--threads N] [--json]

Shapes and formulas are those of ``peers/cpu_torch.py --bench pointwise``. Ours are the kernels of the ops, run through
the driver as a plan does: one list for all launches. Each round is one process of ours and one for each of PyTorch's
modes, one after the other; of all rounds the least and the median count, in milliseconds. PyTorch's allocator is kept
from giving memory back, else half of its time would be page faults.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from dslc.compiler.codegen.cpu.kernel_spec import tasks_of
from dslc.compiler.codegen.cpu.lower import lower
from dslc.compiler.codegen.cpu.object.compile import LEVELS, object_of
from dslc.compiler.codegen.launch import Scratch
from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Value
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops import registry
from dslc.compiler.ops.constants.constant import constant
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.cpu.levels import machine_level
from dslc.runtime.cpu.native import CommandList, Steps, values_of
from dslc.runtime.cpu.objects import Objects

PEER: Final = Path(__file__).parent / "peers/cpu_torch.py"
TUNED: Final = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(64 << 20)}
OPS: Final = registry.ops()
LONG: Final = (1 << 24,)
ROWS: Final = (8192, 1024)


def data(name: str, *shape: int) -> Value:
    return Input(name, Kind.DATA, TensorType(DType.F32, shape)).value


def chain8(b: Builder) -> list[Value]:
    """tanh(relu(x*1.5 + y) - 0.25) * sigmoid(y) + x."""
    x, y = data("x", *LONG), data("y", *LONG)
    inner = b(OPS["relu"], b(OPS["add"], b(OPS["mul"], x, constant(b, 1.5, x)), y))
    left = b(OPS["tanh"], b(OPS["sub"], inner, constant(b, 0.25, x)))
    return [b(OPS["add"], b(OPS["mul"], left, b(OPS["sigmoid"], y)), x)]


def gelu_tanh(b: Builder) -> list[Value]:
    return [b(OPS["gelu"], data("x", *LONG), approximate=True)]


def gelu_erf(b: Builder) -> list[Value]:
    return [b(OPS["gelu"], data("x", *LONG), approximate=False)]


def layernorm_fwd_bwd(b: Builder) -> list[Value]:
    x, dy, w, bias = data("x", *ROWS), data("dy", *ROWS), data("w", ROWS[1]), data("bias", ROWS[1])
    forth = b.node(OPS["layernorm"], x, w, bias, axis=1, eps=1e-5)
    back = b.node(OPS["layernorm_grad"], x, w, *forth.outputs[1:], dy, axis=1)
    return [forth.outputs[0], *back.outputs]


def softmax_fwd_bwd(b: Builder) -> list[Value]:
    x, dy = data("x", *ROWS), data("dy", *ROWS)
    node = b.node(OPS["softmax"], x, axis=1)
    return [node.out, *(v for v in node.op.grad(node, [dy], b) if v is not None)]


#: Not of the peer: what LeNet with avgpool has.
def avgpool_grad(b: Builder) -> list[Value]:
    return [b(OPS["avgpool_grad"], data("dy", 64, 6, 14, 14), k=(2, 2), stride=(2, 2), pad=(0, 0), size=(28, 28))]


def one_sum(b: Builder) -> list[Value]:
    return [b(OPS["sum"], data("x", *LONG), over=(0,), keep=False)]


WORKS: Final[list[Callable[[Builder], list[Value]]]] = [
    chain8, gelu_tanh, gelu_erf, layernorm_fwd_bwd, softmax_fwd_bwd, avgpool_grad, one_sum,
]  # fmt: skip


class Runner:
    """The kernels of a graph on arrays of its own."""

    def __init__(self, make: Callable[[Builder], list[Value]]) -> None:
        b = Builder(name="here")
        results = make(b)
        graph = fuse_graph(_graph(results))
        rng = np.random.default_rng(1)
        self.arrays: dict[Any, np.ndarray] = {}
        launches = [(node, launch) for node in graph.nodes if not node.op.view for launch in lower(node) or ()]
        self.objects = Objects(
            object_of({x.symbol: x.code for _, x in launches}, machine_level(tuple(LEVELS))),
            [x.symbol for _, x in launches],
        )
        commands = CommandList(self.objects)
        for node, launch in launches:
            arguments = [(v, False) for v in launch.reads] + [(v, True) for v in launch.writes]
            views = [(self._array(node, v, rng), written) for v, written in arguments]
            commands.add(launch.symbol, views, tasks_of(launch.spec), values_of(launch.scalar_args))
        self.steps = Steps([commands])

    def _array(self, node: Node, v: Value | Scratch, rng: np.random.Generator) -> np.ndarray:
        key = (node, v) if isinstance(v, Scratch) else _owner(v)
        if key not in self.arrays:
            size = v.bytes if isinstance(v, Scratch) else v.type.bytes
            raw = np.zeros(size + 64, np.uint8)
            whole = raw[-raw.ctypes.data % 64 :][:size]
            if isinstance(v, Value):
                whole = whole.view(numpy_dtype(v.type.dtype.value)).reshape(v.type.ints)
                whole[...] = rng.standard_normal(v.type.ints)
            self.arrays[key] = whole
        return self.arrays[key]


def _owner(v: Value) -> Value:
    """What a view is a view of."""
    while isinstance(v.producer, Node) and v.producer.op.view:
        v = v.producer.inputs[0]
    return v


def _graph(results: list[Value]) -> Graph:
    from dslc.compiler.ir.graph import order

    nodes = order(results)
    inputs = {v.producer: None for n in nodes for v in n.inputs if isinstance(v.producer, Input)}
    return Graph(tuple(inputs), nodes, {f"r{i}": v for i, v in enumerate(results)})


def ours(only: str, seconds: float) -> dict[str, tuple[float, float]]:
    """Name -> (median, least) milliseconds."""
    found = {}
    for make in WORKS:
        if only not in make.__name__:
            continue
        runner = Runner(make)
        times: list[float] = []
        for _ in range(3):
            runner.steps.run()
        end = time.perf_counter() + seconds
        while len(times) < 5 or time.perf_counter() < end:
            begin = time.perf_counter()
            runner.steps.run()
            times.append((time.perf_counter() - begin) * 1e3)
        found[make.__name__] = (statistics.median(times), min(times))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", help="a Python with PyTorch")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.job:
        print(json.dumps(ours(asked.only, asked.seconds)))
        return
    common = ["--threads", str(asked.threads), "--seconds", str(asked.seconds)]
    jobs = {"ours": [sys.executable, __file__, "--job", "--only", asked.only, *common]}
    for mode in ("eager", "compile") if asked.torch else ():
        jobs[f"torch {mode}"] = [asked.torch, str(PEER), "--bench", "pointwise", "--mode", mode, *common]
    results: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for _ in range(asked.rounds):
        for who, command in jobs.items():
            for name, times in run(command, asked.threads).items():
                if asked.only in name and name in {w.__name__ for w in WORKS}:
                    results.setdefault(name, {}).setdefault(who, []).append(times)
    for name, each in results.items():
        row = {
            who: [round(min(t[1] for t in times), 3), round(statistics.median(t[0] for t in times), 3)]
            for who, times in each.items()
        }
        print(json.dumps({"bench": name, **row}) if asked.json else f"{name:20}", *(
            () if asked.json else (f"{who} {least:.2f} ({middle:.2f})" for who, (least, middle) in row.items())
        ), flush=True)  # fmt: skip
    print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)


def run(command: list[str], threads: int) -> dict[str, tuple[float, float]]:
    """What a job prints: ours one line, the peer's one a result."""
    environment = {**os.environ, **TUNED, "OMP_NUM_THREADS": str(threads), "DSLC_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    if command[0] == sys.executable:
        return {name: tuple(times) for name, times in json.loads(done.stdout.splitlines()[-1]).items()}
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {x["bench"].removeprefix("pointwise."): (x["ms_step"], x["ms_min"]) for x in lines if "ms_step" in x}


if __name__ == "__main__":
    main()
