"""Kernels whose blocks wait for one another need a multiprocessor for each block."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dslc.base.errors import EnvironmentFault
from dslc.compiler.codegen.targets import ARCHITECTURES, target_of
from dslc.runtime.cuda.modules import Modules


def modules(count: int) -> Modules:
    device: Any = SimpleNamespace(multiprocessors=count)
    texts = {"a": "ld.acquire.gpu.global.u32", "b": "ld.global.u32", "c": "ld.relaxed.gpu.global.b128"}
    blobs = {f"{name}.ptx": memoryview(text.encode()) for name, text in texts.items()}
    return Modules(device, blobs, (9, 0), False)


def test_a_gpu_with_too_few_multiprocessors_refuses_it() -> None:
    assert not modules(8).together("b.cubin", 96, "loop")
    for blob in ("a.cubin", "c.cubin"):
        assert modules(96).together(blob, 96, "loop")
        with pytest.raises(EnvironmentFault, match="needs as many multiprocessors; this GPU has 78") as refused:
            modules(78).together(blob, 96, "loop")
        assert refused.value.code == "R202" and refused.value.place == "loop"


def test_code_that_small_gpus_run_too_has_no_such_kernel_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    from dslc.compiler.codegen.cuda import target

    monkeypatch.setattr(target, "resident_seconds", lambda loop: 1e-6)
    node: Any = None
    assert {name: target_of(name).resident_loop(node) is not None for name in ARCHITECTURES} == {
        "sm_80": False, "sm_90": True, "sm_100": True
    }  # fmt: skip
