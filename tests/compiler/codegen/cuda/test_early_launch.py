"""A kernel that waits for those before it may be launched while they end: its code says so, and the graph's edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.gpu_model import write_gpu_line
from gpu_kernels.sample_nodes import node_of
from places import ROOT

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.toolchain.numba_cuda import waiting
from dslc.runtime.cuda.arguments import Arguments
from dslc.runtime.cuda.graphs import graph as graphs
from dslc.runtime.session.load import load

KERNELS = ROOT / "compiler/codegen/cuda/kernels"


def touches(ptx: str) -> list[str]:
    """The instructions of the entry that read or write memory, or wait, in order."""
    lines = [line.strip() for line in ptx[ptx.index(".entry") :].split("\n")]
    return [x for x in lines if x.lstrip("@!%p0123456789 ").startswith(("ld.global", "st.", "griddepcontrol", "cp."))]


@pytest.mark.parametrize("op", ["softmax", "add", "matmul", "contraction", "maxpool", "dropout", "scatter_add", "topk"])
@pytest.mark.parametrize(("architecture", "waits"), [("sm_90", True), ("sm_80", False)])
def test_code_waits_before_it_touches_memory(op: str, architecture: str, waits: bool) -> None:
    node, _ = node_of(op, 0, "f32")
    for launch in lower(node) or []:
        found = touches(cuda_compile.compiled(launch.code, launch.symbol, architecture).ptx.decode())
        assert (found[0] == "griddepcontrol.wait;") == waits and ("griddepcontrol.wait;" in found) == waits


#: No plan launches these: a session launches them by themselves.
BY_THEMSELVES = {"outside.cu"}


@pytest.mark.parametrize("name", sorted(p.name for p in KERNELS.glob("*/*.cu") if p.name not in BY_THEMSELVES))
def test_every_file_of_kernels_waits(name: str) -> None:
    """Once for all kernels of the file, or once in each."""
    [path] = KERNELS.glob(f"*/{name}")
    text = path.read_text()
    assert text.count("wait_for_those_before();") in (1, text.count("KERNEL("))


def test_the_wait_is_after_declarations() -> None:
    text = ".version 9.0\n.visible .entry k(\n\t.param .u64 k_param_0\n)\n{\n\t.reg .b32 %r<2>;\n"
    text += "\t.shared .b8 s[4];\n\tret;\n}\n"
    assert waiting(text) == text.replace("\tret;", "\tgriddepcontrol.wait;\n\tret;")


def launch(waits: bool) -> graphs.Launch:
    return graphs.Launch(None, (1, 1, 1), (32, 1, 1), 0, Arguments([]), "k", waits)


def test_edges_are_early_between_kernels_alone() -> None:
    early, copy = graphs.may_begin_early, graphs.Move(0, 512, 4, "copy")
    assert early(launch(True), launch(False)) and not early(launch(False), launch(True))
    assert not early(launch(True), copy) and not early(copy, launch(True))
    alone = replace(launch(True), together=True)
    assert not early(launch(True), alone) and not early(alone, launch(True))


@pytest.mark.parametrize("options", [{}, {"waits": True}, {"waits": True, "ptx": False}])
def test_a_step_of_kernels_that_wait(
    tmp_path: Path, machine: Callable[..., FakeDriver], options: dict[str, Any]
) -> None:
    path, kernels = write_gpu_line(tmp_path, **options)
    fake = machine(**kernels.driver())
    with load(path, weights="init") as session:
        assert (fake.early > 0) == (options == {"waits": True})
        x, target = np.ones((4, 3), np.float32), np.zeros(4, np.int32)
        given = session.train_step(x=x, target=target).loss
    fake = machine(**kernels.driver())
    with load(path, weights="init", bulk=0) as session:
        assert fake.early == 0 and session.train_step(x=x, target=target).loss == given


def test_a_step_of_kernels_whose_blocks_wait_for_one_another(
    tmp_path: Path, machine: Callable[..., FakeDriver]
) -> None:
    """All blocks of each are on the device at once, in graphs and one by one, and none begins early."""
    given = []
    for together, bulk in ((False, "all"), (True, "all"), (True, 0)):
        path, kernels = write_gpu_line(tmp_path, waits=True, together=together)
        fake = machine(**kernels.driver())
        with load(path, weights="init", bulk=bulk) as session:
            given.append(session.train_step(x=np.ones((4, 3), np.float32), target=np.zeros(4, np.int32)).loss)
            assert (fake.together > 0) == together and (fake.early > 0) == (not together)
    assert given == [given[0]] * 3
