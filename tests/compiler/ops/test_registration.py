"""What is not complete cannot be registered, and loading the tables is cheap."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dslc.compiler.ir import op as op_module
from dslc.compiler.ir.function import FUNCTIONS, Function, function
from dslc.compiler.ir.op import OPS, Cost, Op, Pointwise, register
from dslc.compiler.ops.elementwise.arithmetic import Elementwise
from dslc.compiler.ops.registry import load_all, meanings, ops

load_all()
OP_PARTS: dict[str, Callable[..., Any]] = {
    "infer": lambda self, types, attrs: (),
    "grad": lambda self, node, dys, b: (),
    "meaning": lambda self, xs, attrs: [],
    "cost": lambda self, node: Cost(0, 0),
}
ELEMENTWISE_PARTS: dict[str, Callable[..., Any]] = {
    "scalar": lambda self, attrs, *xs: xs[0],
    "compute": lambda self, attrs, *xs: xs[0],
    "grad": lambda self, node, dys, b: (None,),
}
CLASSES: list[tuple[type[Op], dict[str, Callable[..., Any]]]] = [
    (Op, OP_PARTS),
    (Pointwise, {k: v for k, v in (ELEMENTWISE_PARTS | OP_PARTS).items() if k in ("scalar", "meaning", "grad")}),
    (Elementwise, ELEMENTWISE_PARTS),
]


@pytest.fixture(autouse=True)
def tables_stay_as_they_are() -> Iterator[None]:
    before = dict(OPS), dict(FUNCTIONS)
    yield
    for table, kept in zip((OPS, FUNCTIONS), before):
        table.clear()
        table.update(kept)


def made(base: type[Op], parts: dict[str, Callable[..., Any]], **more: Any) -> type[Op]:
    doc = {"__doc__": "half(x): half of it.", "name": "half", "arity": 1}
    return type("Half", (base,), {**parts, **doc, **more})


@pytest.mark.parametrize(("base", "parts"), CLASSES)
def test_a_complete_class_can_be_registered(base: type[Op], parts: dict[str, Any]) -> None:
    assert register(made(base, parts)()) is OPS["half"]


@pytest.mark.parametrize(("base", "parts", "missing"), [(b, p, m) for b, p in CLASSES for m in p])
def test_a_class_with_a_missing_part_cannot(base: type[Op], parts: dict[str, Any], missing: str) -> None:
    half = made(base, {k: v for k, v in parts.items() if k != missing})
    with pytest.raises(TypeError, match=f"abstract.*{missing}"):
        register(half())
    assert "half" not in OPS


WITHOUT = [{"__doc__": ""}, {"__doc__": "Halves."}, {"name": ""}, {"name": "add", "__doc__": "add(x): a"}]


@pytest.mark.parametrize("wrong", WITHOUT)
def test_a_class_without_page_or_own_name_cannot(wrong: dict[str, str]) -> None:
    before = dict(OPS)
    with pytest.raises(TypeError):
        register(made(Op, OP_PARTS, **wrong)())
    assert before == OPS


def test_a_function_without_build_or_example_cannot() -> None:
    page = "half(x): half of it.\n\ngiven: x: [B]\n"
    without_build = type("Half", (Function,), {"name": "half", "__doc__": page + ">>> half(x)"})
    without_example = type("Half", (Function,), {"name": "half", "__doc__": page, "build": lambda self, call, x: x})
    complete = type(
        "Half", (Function,), {"name": "half", "__doc__": page + ">>> half(x)", "build": lambda self, call, x: x}
    )
    for half in (without_build, without_example):
        with pytest.raises(TypeError):
            function(half())
    assert function(complete()) is FUNCTIONS["half"]
    with pytest.raises(TypeError, match="already"):
        function(complete())


def test_meanings_are_those_of_all_ops() -> None:
    assert meanings().keys() == ops().keys() == op_module.OPS.keys()


def test_loading_the_tables_does_not_load_numpy() -> None:
    code = "import sys; from dslc.compiler.ops.registry import load_all; load_all(); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
