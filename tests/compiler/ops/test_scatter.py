"""scatter in all modes against a loop over elements: values, duplicates, indices that do not exist, gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs.random_training import training_of
from op_laws.evaluation import run, type_of
from op_laws.language import check, in_double
from op_laws.recorder import Recorder

from dslc.compiler.artifact.interface import integer_ranges
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.elementwise.arithmetic import mul
from dslc.dsl.diagnostics import CompileError

RNG = np.random.default_rng(7)
X, SRC = RNG.uniform(-2, 2, (3, 4, 2)), RNG.uniform(-2, 2, (3, 9, 2))
INDEX = RNG.integers(0, 3, (3, 9, 2)).astype(np.int32)  # of the four elements, the last one gets nothing
LINE = np.array([2, 0, 0, 2, 1, 2, 2, 0, 0], np.int64)
COMBINE: dict[str, Any] = {"replace": lambda a, b: b, "add": lambda a, b: a + b, "mul": lambda a, b: a * b,
                           "max": max, "min": min}  # fmt: skip
MODES = list(COMBINE)


def looped(x: np.ndarray, index: np.ndarray, src: np.ndarray, axis: int, mode: str, own: bool = True) -> np.ndarray:
    y, met = x.copy(), set()
    for at in np.ndindex(src.shape):
        to = (*at[:axis], index[at] if index.ndim == src.ndim else index[at[axis]], *at[axis + 1 :])
        y[to] = COMBINE[mode](y[to], src[at]) if own or to in met else src[at]
        met.add(to)
    return y


def scattered(folder: Path, given: dict[str, np.ndarray], more: str) -> np.ndarray:
    kinds = {"float64": "", "int32": "i32", "int64": "i64"}
    declared = ", ".join(f"{n}: {kinds[a.dtype.name]}{list(a.shape)}" for n, a in given.items())
    shape = str(list(given["x"].shape))
    result = shape if given["x"].dtype.kind == "f" else f"i64{shape}"
    model = check(folder, declared, f"  return scatter(x, i, s{more})", result)
    inputs, outputs = in_double(model.graph, {})
    return run(list(outputs.values()), {inputs[n]: a for n, a in given.items()})[0]


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_values(tmp_path: Path, mode: str, own: bool, dtype: str) -> None:
    x, src = (np.round(3 * a).astype(dtype) for a in (X, SRC))
    for axis, index in ((1, INDEX), (1, LINE), (0, np.moveaxis(INDEX, 1, 0)), (0, LINE), (2, np.moveaxis(INDEX, 1, 2))):
        given = [np.moveaxis(a, 1, axis) for a in (x, src)]
        more = f', axis={axis}, mode="{mode}"' + ("" if own else ", include_self=false")
        found = scattered(tmp_path, {"x": given[0], "i": index, "s": given[1]}, more)
        np.testing.assert_allclose(found, looped(given[0], index, given[1], axis, mode, own), rtol=1e-12)


@pytest.mark.parametrize("wrong", [-1, 4, -4, 2**31 - 1])
@pytest.mark.parametrize("mode", MODES)
def test_an_index_outside_gives_nan_in_its_line(tmp_path: Path, mode: str, wrong: int) -> None:
    index = INDEX.copy()
    index[1, 2, 0] = wrong
    found = scattered(tmp_path, {"x": X, "i": index, "s": SRC}, f', axis=1, mode="{mode}"')
    lost = np.zeros((3, 4, 2), bool)
    lost[1, :, 0] = True
    assert (np.isnan(found) == lost).all()


@pytest.mark.parametrize("mode", MODES)
def test_an_index_outside_has_no_effect_on_integers(tmp_path: Path, mode: str) -> None:
    x, src = (np.round(3 * a).astype(np.int64) for a in (X, SRC))
    index = INDEX.copy()
    index[:, 4] = -1
    more = f', axis=1, mode="{mode}"'
    found = scattered(tmp_path, {"x": x, "i": index, "s": src}, more)
    kept = [np.delete(a, 4, 1) for a in (INDEX, src)]
    np.testing.assert_array_equal(found, looped(x, kept[0], kept[1], 1, mode))


def gradients(
    x: np.ndarray, index: np.ndarray, src: np.ndarray, weight: np.ndarray, mode: str, own: bool = True, axis: int = 1
) -> list[np.ndarray]:
    """Those of x and src, for a loss that is the sum of the result times ``weight``."""
    arrays = {"x": x, "i": index, "s": src, "w": weight}
    inputs = {n: Input(n, Kind.PARAM if n in "xs" else Kind.DATA, type_of(a)) for n, a in arrays.items()}
    call = Recorder(DType.F64)
    y = call.build("scatter", inputs["x"].value, inputs["i"].value, inputs["s"].value, axis, mode, own)
    graph = training_of(list(inputs.values()), call.emit(mul, y, inputs["w"].value), [inputs["x"], inputs["s"]])
    found = run(list(graph.outputs.values())[1:], {inputs[n].value: a for n, a in arrays.items()})
    return [g * x.size for g in found]  # the loss of the graph is the mean


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("index", [INDEX, LINE], ids=["elements", "parts"])
def test_gradients_are_those_of_differences(mode: str, own: bool, index: np.ndarray) -> None:
    x, src = X.copy(), SRC.copy()
    if mode == "mul":
        x[0, :3, 0], src[1, 2, 0], src[1, :2, 1] = 0, 0, 0
    weight = RNG.uniform(0.5, 2, x.shape)
    found = gradients(x, index, src, weight, mode, own)

    def loss() -> float:
        return float((looped(x, index, src, 1, mode, own) * weight).sum())

    for array, gradient in zip((x, src), found, strict=True):
        wanted = np.zeros_like(array)
        for at in np.ndindex(array.shape):
            kept, sides = array[at], []
            for step in (1e-6, -1e-6):
                array[at] = kept + step
                sides.append(loss())
            array[at] = kept
            wanted[at] = (sides[0] - sides[1]) / 2e-6
        np.testing.assert_allclose(gradient, wanted, rtol=1e-5, atol=1e-8)


def test_equal_greatest_elements_share_the_gradient_evenly() -> None:
    x, i, s = np.array([1.0, 0.0]), np.array([0, 0, 1, 0]), np.array([1.0, 1.0, 0.5, 0.0])
    dx, ds = gradients(x, i, s, np.array([3.0, 1.0]), "max", axis=0)
    assert dx.tolist() == [1, 0] and ds.tolist() == [1, 1, 1, 0]


def test_data_is_checked_for_a_vector_of_indices(tmp_path: Path) -> None:
    model = check(tmp_path, "x: [3, 4], i: i32[5], s: [3, 5]", '  return scatter(x, i, s, mode="max")', "[3, 4]")
    assert integer_ranges(model) == {"i": [0, 4]}


REFUSED = [
    ("scatter(x, i, s, axis=0)", "E0302", "along axis 0"),
    ("scatter(x, i, x)", "E0302", "at indices"),
    ("scatter(x, i[0], x)", "E0302", "at i32[5]"),
    ("scatter(x, s, s)", "E0203", "integer tensor"),
    ("scatter(x, i, i)", "E0204", "into"),
    ('scatter(x, i, s, mode="mean")', "E0209", "no mode"),
    ('scatter(x > 0, i, s > 0, mode="max")', "E0203", "needs numbers"),
    ("scatter(x, i, s, axis=2)", "E0306", "axis 2"),
]


@pytest.mark.parametrize("text, code, why", REFUSED)
def test_what_does_not_fit_is_refused(tmp_path: Path, text: str, code: str, why: str) -> None:
    with pytest.raises(CompileError) as caught:
        check(tmp_path, "x: [3, 4], i: i32[3, 5], s: [3, 5]", f"  y = {text}\n  return x + sum(i) + sum(s)", "[3, 4]")
    assert caught.value.code == code and why in str(caught.value)
