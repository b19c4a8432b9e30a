"""Kernels of all lengths of vectors compile for every level, also those that this machine cannot run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_laws.evaluation import values_of

from dslc.compiler.codegen.cpu.lower import lower
from dslc.compiler.codegen.cpu.object.compile import kernel_code
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops import registry

OPS = registry.ops()
#: op, attributes as a function of the length n, dtypes of inputs of [2, n]
CASES: list[tuple[str, Any, list[str]]] = [
    ("tri", lambda n: {"shape": (2, n), "diagonal": -1}, []),
    ("eq", lambda n: {}, ["int64", "int64"]),
    ("lt", lambda n: {}, ["float64", "float64"]),
    ("cast", lambda n: {"dtype": "i8"}, ["float64"]),
    ("mod", lambda n: {}, ["float32", "float32"]),
    ("sin", lambda n: {}, ["float32"]),
    ("pow", lambda n: {}, ["float64", "float64"]),
    ("cumsum", lambda n: {"axis": 1, "reverse": True}, ["bool"]),
    ("max", lambda n: {"over": (1,), "keep": False}, ["uint8"]),
    ("adaptive_maxpool", lambda n: {"size": (3,)}, ["float64"]),
    ("interpolate", lambda n: {"size": (n + 2,), "mode": "linear"}, ["float32"]),
    ("topk", lambda n: {"axis": 1, "k": 1, "largest": True}, ["float32"]),
]


@pytest.mark.parametrize("length", [1, 3, 5, 7, 11, 15, 19])
@pytest.mark.parametrize(("name", "attrs", "dtypes"), CASES, ids=[c[0] for c in CASES])
def test_every_level(name: str, attrs: Any, dtypes: list[str], length: int) -> None:
    shape = (1, 2, length) if "size" in attrs(length) else (2, length)
    found = {k: DType(v) if k == "dtype" else v for k, v in attrs(length).items()}
    node = Builder(name="here").node(OPS[name], *values_of([np.zeros(shape, d) for d in dtypes]), **found)
    launches = lower(node)
    assert launches
    for launch in launches:
        assert kernel_code(launch.symbol, launch.code)
