"""The hand-made model of line_model.py for GPUs: each op a kernel of the fake driver, with the same numpy meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from artifacts import line_model
from fake_gpu.fake_driver import FakeDriver, fake_cubin

from dslc.runtime.artifact.dtypes import numpy_name
from dslc.runtime.artifact.file import Artifact, Blob, write_artifact
from dslc.runtime.artifact.instructions import BulkBegin, BulkEnd, Kernel, Reference
from dslc.runtime.artifact.interface import Interface
from dslc.runtime.artifact.plan import Buffer, Plan
from dslc.runtime.artifact.reserved import CHECK_ARGUMENTS, check_blob, check_symbol
from dslc.runtime.extents import rows_of


@dataclass
class Kernels:
    """What the fake driver runs: by symbol the function and how many arguments it has."""

    meanings: Mapping[str, Any] = field(default_factory=lambda: line_model.MEANINGS)
    functions: dict[str, Callable[..., None]] = field(default_factory=dict)
    parameters: dict[str, int] = field(default_factory=dict)

    def driver(self, **options: Any) -> dict[str, Any]:
        """Arguments of a FakeDriver that knows these kernels."""
        return {"kernels": self.functions, "parameters": self.parameters, **options}

    def add(self, op: str, attrs: Mapping[str, Any], reads: Sequence[Buffer], writes: Sequence[Buffer]) -> str:
        """A kernel for an op on buffers; its symbol."""
        meaning = self.meanings[op]
        described = [(numpy_name(b.dtype), b.shape) for b in (*reads, *writes)]  # no code of the test runs in a kernel

        def run(driver: FakeDriver, grid: Any, block: Any, *addresses: int) -> None:
            views = [driver.array(address, dtype, shape) for address, (dtype, shape) in zip(addresses, described)]
            with np.errstate(all="ignore"):
                results = meaning([v.copy() for v in views[: len(reads)]], attrs)
            for view, result in zip(views[len(reads) :], results, strict=True):
                view[...] = result

        symbol = f"k_{len(self.functions)}_{op}"
        self.functions[symbol] = run
        self.parameters[symbol] = len(reads) + len(writes)
        return symbol


def on_gpu(plan: Plan, kernels: Kernels, target: str, *, bulks: bool) -> Plan:
    """The same plan with kernels in the place of ops."""
    instructions: list[Any] = [BulkBegin(0)] if bulks else []
    for step in plan.instructions:
        if isinstance(step, Reference):
            reads, writes = ([plan.buffers[i] for i in side] for side in (step.inputs, step.outputs))
            symbol = kernels.add(step.op, step.attrs, reads, writes)
            args = (*(("in", i) for i in step.inputs), *(("out", o) for o in step.outputs))
            blob = f"{symbol}.{target}.cubin"
            step = Kernel(blob, symbol, (1, 1, 1), (32, 1, 1), 0, args, 0, step.where)
        instructions.append(step)
    return replace(plan, instructions=(*instructions, *([BulkEnd(0)] if bulks else [])))


def fake_ptx(target: str, symbol: str, count: int) -> bytes:
    """The text of a kernel with so many pointers."""
    taken = ",\n".join(f".param .u64 {symbol}_param_{i}" for i in range(count))
    return f".version 9.0\n.target {target}\n.visible .entry {symbol}(\n{taken})\n".encode()


def check_blobs(interface: Mapping[str, Any], target: str, ptx: bool = False) -> list[Blob]:
    """The code of the kernels that check inputs."""
    found = []
    for dtype in Interface.of_header(interface).checked_dtypes:
        symbol, name, count = check_symbol(dtype), check_blob(dtype, target), len(CHECK_ARGUMENTS)
        found.append(Blob(name, "cubin", fake_cubin(int(target[3:].rstrip("a")), symbol, parameters=count)))
        if ptx:
            found.append(Blob(name.removesuffix("cubin") + "ptx", "ptx", fake_ptx(target, symbol, count)))
    return found


def moved_to_gpu(artifact: Artifact, kernels: Kernels, target: str = "sm_90") -> bytes:
    """An artifact of the reference provider with the same programs for a GPU and for the CPU."""
    plans: list[Plan] = []
    programs, blobs = [], [Blob(n, "constant", bytes(artifact.blob(n))) for n in artifact.blobs("constant")]
    for program in artifact.all_programs():
        for where in ("cpu", target):
            plan = artifact.plan(program)
            if where != "cpu":
                plan = on_gpu(plan, kernels, target, bulks=True)
            plans.append(plan)
            number = f"plan.{len(programs)}"
            blobs.append(Blob(number, "plan", plan.encode()))
            blobs += [
                Blob(i.blob, "cubin", fake_cubin(int(target[3:]), i.symbol, parameters=kernels.parameters[i.symbol]))
                for i in plan.instructions
                if isinstance(i, Kernel)
            ]
            entry = {f: getattr(program, f) for f in ("entry", "io_bytes", "work_bytes", "context_bytes")}
            entry |= {"context": dict(program.context)} if program.context else {}
            entry |= {"turn": program.turn} if program.turn else {}
            entry |= {"prepared_bytes": program.prepared_bytes} if program.prepared_bytes else {}
            programs.append(
                {**entry, "target": where, "provider": program.provider, "sizes": dict(program.sizes), "plan": number,
                 "lower_bound": program.lower_bound, "planned": program.planned}
            )  # fmt: skip
    blobs += check_blobs(artifact.header["interface"], target)
    header = {k: v for k, v in artifact.header.items() if k not in ("blobs", "format", "interface_sha256")}
    features = sorted({*header["required_features"], "cuda"})
    more = {"programs": programs, "required_features": features, "kernels": rows_of(plans)}
    return write_artifact({**header, **more}, blobs)


def write_gpu_line(
    folder: Path,
    *,
    targets: Sequence[str] = ("sm_90",),
    bulks: bool = False,
    ptx: bool = True,
    waits: bool = False,
    together: bool = False,
    mix: bool = False,
    name: str = "line",
    checks: bool = True,
    options: Mapping[str, Any] | None = None,
) -> tuple[Path, Kernels]:
    """``NAME.dslc`` with a set of programs for each target, of which ``cpu`` is one; and the kernels. ``checks``: with
    those that check inputs, as older artifacts are not."""
    rows = line_model.BATCH
    makers = [("init", {}, line_model.init_plan()), ("train_step", {"B": rows}, line_model.train_plan(rows)),
              ("eval_finish", {}, line_model.finish_plan())]  # fmt: skip
    for size in (1, rows):
        makers.append(("predict", {"B": size}, line_model.predict_plan(size, "mixing" if mix else "linear")))
        makers.append(("eval_step", {"B": size}, line_model.eval_plan(size)))
    kernels = Kernels()
    blobs = [Blob("two", "constant", np.float32([2]).tobytes())]
    programs: list[dict[str, Any]] = []
    plans: list[Plan] = []
    for target in targets:
        for entry, sizes, maker in makers:
            plan = maker.plan()
            if target != "cpu":
                plan = on_gpu(plan, kernels, target, bulks=bulks)
            plans.append(plan)
            number = f"plan.{len(programs)}"
            blobs.append(Blob(number, "plan", plan.encode()))
            programs.append(
                {
                    "entry": entry, "target": target, "provider": "reference" if target == "cpu" else "own",
                    "sizes": sizes, "io_bytes": maker.ends["io"], "work_bytes": maker.ends["work"],
                    "context_bytes": 0, "plan": number, "lower_bound": maker.ends["work"],
                    "planned": maker.ends["work"],
                }
            )  # fmt: skip
            for step in plan.instructions:
                if isinstance(step, Kernel):
                    count, arch = kernels.parameters[step.symbol], int(target[3:].rstrip("a"))
                    blobs.append(Blob(step.blob, "cubin", fake_cubin(arch, step.symbol, parameters=count)))
                    if ptx:
                        text = fake_ptx(target, step.symbol, count)
                        text += b"griddepcontrol.wait;\n" if waits else b""
                        text += b"ld.acquire.gpu.global.u32 %r1, [%rd1];\n" if together else b""
                        blobs.append(Blob(step.blob.removesuffix("cubin") + "ptx", "ptx", text))
    header = line_model.header(programs, row_independent=not mix, name=name)
    header["required_features"] = sorted({"reference" if t == "cpu" else "cuda" for t in targets})
    for target in targets:
        blobs += check_blobs(header["interface"], target, ptx) if checks and target != "cpu" else []
    header["options"] = dict(options or {})
    header["kernels"] = rows_of(plans)
    path = folder / f"{name}.dslc"
    path.write_bytes(write_artifact(header, blobs))
    return path, kernels
