"""A small model whose contractions are calls of fake libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from fake_gpu.fake_driver import fake_cubin
from fake_gpu.gpu_model import Kernels, on_gpu

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen import lowering_cache
from dslc.compiler.codegen.cuda.libraries import library
from dslc.compiler.codegen.cuda.libraries.cublaslt import VendorGemm
from dslc.compiler.codegen.cuda.libraries.cudnn import VendorConv
from dslc.compiler.codegen.cuda.libraries.library import WORKSPACE
from dslc.compiler.codegen.cuda.libraries.registry import library_call
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops import registry
from dslc.compiler.options import Options
from dslc.runtime.artifact.file import Artifact, Blob, write_artifact
from dslc.runtime.artifact.instructions import Gemm, Kernel, Reference
from dslc.runtime.artifact.plan import Buffer, Plan
from dslc.runtime.extents import rows_of
from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session

#: Library -> the text of an algorithm.
Algorithms: TypeAlias = Mapping[str, str]

MODEL = """nn 1
dim B in 1..64 = 4
model Small(image: [B, 3, 8, 8]) -> [B, 5] {
  return image |> conv(6, 3, pad=1) as a |> relu |> conv(4, 3, stride=2, pad=1) as b |> relu
    |> flatten |> linear(16) as c |> relu |> linear(5) as d
}
train Small(label: i32[B]) {
  loss      = cross_entropy(output, label)
  optimizer = sgd(lr=0.05, momentum=0.9)
}
"""


def call_of(step: Reference, plan: Plan) -> VendorGemm | VendorConv | None:
    """The library's call for an op of the reference provider."""
    kinds = {i: TensorType(DType(b.dtype), b.shape) for i, b in enumerate(plan.buffers)}
    if step.op not in ("matmul", "conv", "conv_dgrad", "conv_wgrad"):
        return None
    values = [Input(f"x{i}", Kind.DATA, kinds[i]).value for i in step.inputs]
    attrs = {k: tuple(v) if isinstance(v, list) else v for k, v in step.attrs.items()}
    found = library_call(Builder(name="sample").node(registry.ops()[step.op], *values, **attrs), "sm_90")
    assert isinstance(found, Launch)
    return found.spec


def with_libraries(plan: Plan, work_bytes: int, algorithms: Algorithms | None) -> Plan:
    """Contractions of a plan as library calls, whose workspace follows ``work_bytes``."""
    buffers = [*plan.buffers, Buffer("work", work_bytes, "u8", (WORKSPACE,))]
    instructions: list[Any] = []
    for step in plan.instructions:
        spec = call_of(step, plan) if isinstance(step, Reference) else None
        if spec is None:
            instructions.append(step)
            continue
        old = [plan.buffers[i] for i in (*step.inputs, *step.outputs)]
        operands = range(len(buffers), len(buffers) + len(old))
        buffers += [replace(b, shape=shape) for b, shape in zip(old, spec.shapes, strict=True)]
        call = spec.instruction(operands, len(plan.buffers), step.where)
        instructions.append(call if algorithms is None else named(call, algorithms[call.provider]))
    return replace(plan, buffers=tuple(buffers), instructions=tuple(instructions))


def named(call: Any, algorithm: str) -> Any:
    """The call by the algorithm of this text."""
    if isinstance(call, Gemm):
        return replace(call, algorithm=algorithm.encode())
    engine, *knobs = algorithm.removeprefix("eng").split("_k")
    return replace(call, engine=int(engine), knobs=tuple((int(k), int(v)) for k, v in (x.split("=") for x in knobs)))


def small(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    algorithms: Algorithms | None = None,
    measured: Sequence[str] = (),
) -> tuple[Path, Kernels]:
    """The model for the CPU through numpy, and for a GPU with contractions by libraries and the rest by kernels.
    ``algorithms``: of each library; None for its choice. ``measured``: the versions in the header."""
    monkeypatch.setattr(library, "MIN_WORK", 0)
    # what is lowered so is no other test's
    first = lowering_cache._first
    monkeypatch.setattr(lowering_cache, "_first", getattr(first, "__wrapped__", first))
    (folder / "small.nn").write_text(MODEL)
    built = pipeline.build(check_file(folder / "small.nn"), Options(provider="reference"))
    artifact, kernels = Artifact.of_bytes(built.artifact), Kernels(registry.meanings())
    programs: list[dict[str, Any]] = []
    plans = []
    blobs = [Blob(n, "constant", bytes(artifact.blob(n))) for n in artifact.blobs("constant")]
    for program in artifact.all_programs():
        for target in ("cpu", "sm_90"):
            plan, work = artifact.plan(program), program.work_bytes
            if target != "cpu":
                work += -work % 64
                plan = on_gpu(with_libraries(plan, work, algorithms), kernels, target, bulks=True)
                work += WORKSPACE
            plans.append(plan)
            number = f"plan.{len(programs)}"
            blobs.append(Blob(number, "plan", plan.encode()))
            blobs += [
                Blob(i.blob, "cubin", fake_cubin(90, i.symbol, parameters=kernels.parameters[i.symbol]))
                for i in plan.instructions
                if isinstance(i, Kernel)
            ]
            entry = {f: getattr(program, f) for f in ("entry", "io_bytes", "context_bytes", "provider", "lower_bound")}
            programs.append({**entry, "target": target, "sizes": dict(program.sizes), "plan": number,
                             "work_bytes": work, "planned": work})  # fmt: skip
    header = {k: v for k, v in artifact.header.items() if k not in ("blobs", "format", "interface_sha256")}
    features = ["cublaslt", "cuda", "cudnn", "reference"]
    if measured:
        header["lock"] = {"sm_90": {"gpu": "GPU", "sha256": "0" * 64, "blocks": 1, "versions": list(measured)}}
    more = {"programs": programs, "required_features": features, "kernels": rows_of(plans)}
    data = write_artifact({**header, **more}, blobs)
    (folder / "small.dslc").write_bytes(data)
    return folder / "small.dslc", kernels


def batch(step: int) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    return {"image": rng.standard_normal((4, 3, 8, 8)).astype(np.float32),
            "label": rng.integers(0, 5, 4).astype(np.int32)}  # fmt: skip


def opened(path: Path, **more: Any) -> Session:
    return load(path, weights="init", seed=5, meanings=registry.meanings, **more)
