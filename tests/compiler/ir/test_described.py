"""Symbols of kernels are digests of texts that no name of a class or a field is part of."""

from __future__ import annotations

import enum
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, make_dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from gpu_kernels import symbols
from gpu_kernels.sample_nodes import OPS, SAMPLES, node_of
from places import SUPPORT
from thinning import SOAK, taken

from dslc.compiler.codegen.cpu import kernel_spec as cpu
from dslc.compiler.codegen.cpu.lower import SHARED
from dslc.compiler.codegen.cuda import kernel_spec as cuda
from dslc.compiler.codegen.cuda.libraries.cublaslt import VendorGemm, VendorSum
from dslc.compiler.codegen.cuda.libraries.cudnn import VendorConv, VendorConvSum
from dslc.compiler.codegen.cuda.libraries.cudnn_attention import VendorAttention
from dslc.compiler.codegen.cuda.libraries.registry import Chosen
from dslc.compiler.codegen.cuda.region.extended import ExtendedRegion
from dslc.compiler.codegen.cuda.region.kernel import RegionKernel
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.region.ir import Region, Store
from dslc.compiler.codegen.targets import target_of
from dslc.compiler.ir import described as module
from dslc.compiler.ir.described import canonical, described
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.types import DType
from dslc.compiler.toolchain.spec_json import encode

#: Classes and fields, and names that they may get.
RENAMES = {
    "Region": "LoopNest", "Access": "Strided", "Stage": "Part", "Let": "Define", "SetFlag": "Raises", "Bits": "Philox",
    "Expr": "Tree", "DType": "Storage", "Contraction": "SumOfProducts", "Source": "Script", "Foreach": "ForEach",
    "AttentionGrad": "AttentionBack", "VendorGemm": "LibraryProduct",
    "canonical_strides": "strides_of_all", "mixed_radix": "unravelled_axes", "lets": "values_", "reduces": "reductions",
    "row_tile": "rows_of_a_tile", "panel_depth": "depth_of_a_panel", "resident": "blocks_together", "BF16": "BRAIN",
}  # fmt: skip


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test declares is forgotten after it."""
    monkeypatch.setattr(module, "_WRITERS", dict(module._WRITERS))
    monkeypatch.setattr(module, "_DECLARED", dict(module._DECLARED))


def launches() -> Iterator[tuple[str, Launch]]:
    """Those of samples that the seed takes, on each target."""
    for target, vendor in (("cpu", False), ("sm_90", False), ("sm_90", True)):
        made = target_of(target, vendor)
        for name in sorted(SAMPLES.keys() & OPS.keys()):
            for number, dtype in taken(product(range(len(SAMPLES[name])), ("f32", "bf16", "f64")), 4):
                for launch in made.lower(node_of(name, number, dtype)[0]) or []:
                    yield f"{name} {number} {dtype} {target}", launch


def test_symbols_of_models(golden: Callable[[str, str], None]) -> None:
    golden("kernels/symbols.txt", symbols.text())


@pytest.mark.slow
def test_no_symbol_follows_a_renaming(tmp_path: Path) -> None:
    """In a copy of the compiler with classes, fields and a member of other names."""
    here = Path(module.__file__).resolve().parents[2]
    copy = tmp_path / "dslc"
    shutil.copytree(here / "dslc", copy, ignore=shutil.ignore_patterns("__pycache__"))
    renamed = set()
    for path in sorted((copy / "compiler").rglob("*.py")):
        text = path.read_text()
        if not any(name in text for name in RENAMES):
            continue
        renamed |= {t.string for t in _tokens(text) if t.type == tokenize.NAME} & RENAMES.keys()
        path.write_text(_renamed(text))
    assert renamed == RENAMES.keys(), "names that are no more"
    code = "import dslc; from gpu_kernels import symbols; print(dslc.__file__); print(symbols.text(), end='')"
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{SUPPORT}", "DSLC_CACHE_DIR": "off"}
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    where, _, found = ran.stdout.partition("\n")
    assert where == str(copy / "__init__.py")
    assert found == symbols.text()


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


def _renamed(text: str) -> str:
    """Names, and those in the braces of f-strings, which are one token each."""
    lines = text.splitlines(keepends=True)
    for token in reversed(_tokens(text)):
        new = token.string
        if token.type == tokenize.NAME:
            new = RENAMES.get(new, new)
        elif token.type == tokenize.STRING and new.startswith("f") and token.start[0] == token.end[0]:
            new = re.sub(r"{[^{}]*}", lambda braces: re.sub(r"\w+", lambda w: RENAMES.get(w[0], w[0]), braces[0]), new)
        if new != token.string:
            (row, start), (_, end) = token.start, token.end
            lines[row - 1] = lines[row - 1][:start] + new + lines[row - 1][end:]
    return "".join(lines)


@pytest.mark.slow
def test_texts_tell_descriptions_apart() -> None:
    """As many texts as descriptions, told apart by their classes' modules and names and by the types of numbers."""
    texts: dict[str, str] = {}
    data: dict[str, str] = {}
    for where, launch in launches():
        text, own = canonical(launch.code), json.dumps(encode(launch.code))
        assert texts.setdefault(text, own) == own, f"{where} is written like another one"
        assert data.setdefault(own, text) == text, f"{where} is written in two ways"
    assert len(texts) > (1000 if SOAK else 250)


def test_all_classes_of_descriptions_are_declared() -> None:
    """Those that the targets compile, and all that their fields may hold; one by one, not through what they inherit."""
    target_of("cpu"), target_of("sm_90", True)
    bases = (cpu.KernelCode, cuda.KernelCode)
    kinds = {kind for base in bases for kind in below(base) if is_dataclass(kind)} - {RegionKernel}
    kinds |= {*SHARED}
    found: set[type] = set()
    waiting: list[Any] = [
        *kinds,
        ExtendedRegion,
        VendorGemm,
        VendorSum,
        VendorConv,
        VendorConvSum,
        VendorAttention,
        Chosen,
    ]
    while waiting:
        kind = waiting.pop()
        if not isinstance(kind, type) or not (is_dataclass(kind) or issubclass(kind, enum.Enum)):
            waiting += get_args(kind)
        elif kind not in found:
            found.add(kind)
            waiting += get_type_hints(kind).values() if is_dataclass(kind) else ()
    assert {Region, Expr, DType, *kinds} <= found
    assert found == module._WRITERS.keys() - {bool, int, float, str, type(None)}


def below(base: type) -> Iterator[type]:
    """All classes that inherit from a class."""
    for kind in base.__subclasses__():
        if getattr(sys.modules[kind.__module__], kind.__name__) is kind:  # dataclasses with slots replace a class
            yield kind
        yield from below(kind)


def test_values() -> None:
    store = Store(0, 1)  # its names are those that it is described by
    for value in (None, True, 1, -3, 0.1, -0.0, math.inf, math.nan, "a'\n", (), (1,), ((1, 2.0), ("x",)), DType.BF16,
                  store, (store, None), Expr("const", value=0.5)):  # fmt: skip
        assert canonical(value) == repr(value)
    alike = [(), ((),), (0,), (0.0,), (-0.0,), (False,), (None,), ("None",), ("0",), ((0,),), (0, 0), ("0, 0",)]
    assert len({canonical(value) for value in alike}) == len(alike)


class Flag(int):
    pass


@dataclass(frozen=True)
class Wider(Region):
    more: int = 0


@pytest.mark.parametrize("value", [Flag(1), [1], {1: 2}, b"x", 1j, Wider((), (), (), (), ()), Region, object()])
def test_what_does_not_say_how_it_is_written(value: Any) -> None:
    with pytest.raises(TypeError, match="declare it with @described"):
        canonical((value,))


def test_the_tag_is_the_text(declared: None) -> None:
    other = described("Region", "outer inner_ inputs outputs stages indices whole")(
        make_dataclass("Other", [f"f{n}" for n in range(len(fields(Region)))])
    )
    text = canonical(Region((2,), (), (), (), ()))
    assert canonical(other((2,), (), (), (), (), (), ())) == text.replace("inner", "inner_") != text
    colour = described("Colour", "RED BLUE")(enum.Enum("Hue", {"CRIMSON": 1, "NAVY": "b"}))  # type: ignore[arg-type]
    assert [canonical(c) for c in colour] == ["<Colour.RED: 1>", "<Colour.BLUE: 'b'>"]


@pytest.mark.parametrize("tag, names", [("Pair", "a"), ("Pair", "a b c"), ("Pair", "a a"), ("Fetched", "output value")])
def test_wrong_declarations(tag: str, names: str, declared: None) -> None:
    described("Fetched", "output value")(make_dataclass("Other", ["x", "y"]))
    with pytest.raises(AssertionError):
        described(tag, names)(make_dataclass("Pair", ["a", "b"]))
    with pytest.raises(AssertionError):
        described("Plain", "")(type("Plain", (), {}))
