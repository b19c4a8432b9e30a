"""dft against numpy's fft: values, and gradients, which are transforms of the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from op_laws.evaluation import run
from op_laws.function_gradients import weights_of, with_gradients
from op_laws.recorder import Recorder, value_of

from dslc.compiler.check.model import check_file
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.constants.literal import MOST_WRITTEN
from dslc.compiler.ops.products.fourier import unit_root

RNG = np.random.default_rng(5)
_NUMBERS = [*range(1, 301)]


@pytest.mark.parametrize("count", [1, 2, 3, 8, 12, 35, 128])
@pytest.mark.parametrize("inverse", [False, True])
def test_complex_transforms(count: int, inverse: bool) -> None:
    x, y = RNG.uniform(-2, 2, (2, 3, count))
    values, gradients = with_gradients(lambda call, *xs: call.build("dft", *xs, inverse=inverse), [x, y])
    expected = (np.fft.ifft if inverse else np.fft.fft)(x + 1j * y)
    np.testing.assert_allclose(values[0] + 1j * values[1], expected, rtol=1e-11, atol=1e-12)
    weight = weights_of((3, count))  # of both parts; the transpose of a transform is the transform of the other sign
    back = np.conj((np.fft.ifft if inverse else np.fft.fft)(np.conj(weight + 1j * weight)))
    np.testing.assert_allclose(gradients[0] + 1j * gradients[1], back, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 64])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_onesided_transforms_of_reals(count: int, axis: int) -> None:
    shape = [3, 2, 4]
    shape[axis] = count
    x = RNG.uniform(-2, 2, shape)
    call: Any = Recorder(DType.F64)
    value = value_of(x)
    re, im = call.build("dft", value, axis=axis, onesided=True)
    again = call.build("dft", re, im, axis=axis, inverse=True, onesided=True, size=count)
    found = run([re, im, again], {value: x})
    np.testing.assert_allclose(found[0] + 1j * found[1], np.fft.rfft(x, axis=axis), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(found[2], x, rtol=1e-11, atol=1e-12)


def test_a_vector_has_a_transform() -> None:
    x = RNG.uniform(-2, 2, 10)
    (re, im), _ = with_gradients(lambda call, x: call.build("dft", x), [x])
    np.testing.assert_allclose(re + 1j * im, np.fft.fft(x), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 4, 6, 12, 64, 1000])
def test_quarter_turns_are_exact(count: int) -> None:
    for number in range(2 * count):
        c, s = unit_root(number, count)
        assert abs(complex(c, s) - np.exp(2j * np.pi * number / count)) < 1e-14
        if 4 * number % count == 0:
            assert (c, s) in {(1, 0), (0, 1), (-1, 0), (0, -1)}


def test_single_precision_errs_by_rounding_alone() -> None:
    x = RNG.uniform(-1, 1, (4, 512)).astype(np.float32)
    value = value_of(x)
    found = run(list(Recorder(DType.F32).build("dft", value, onesided=True)), {value: x})
    expected = np.fft.rfft(x.astype(np.float64))
    assert np.abs(found[0] + 1j * found[1] - expected).max() < 2e-6 * np.abs(expected).max()


def test_long_tables_are_stored(tmp_path: Path) -> None:
    """A GPU's kernel writes few values into its code; an artifact stores more of them as data."""
    call = f"normalize(x, mean={_NUMBERS}, std={_NUMBERS})"
    source = tmp_path / "long.nn"
    source.write_text(f"nn 1\nmodel Long(x: [4, 300]) -> [_, _] {{\n  return {call}\n}}\n")
    graph = check_file(source, "Long", {}).graph
    assert any(i.stored is not None and np.prod(i.value.type.ints) > MOST_WRITTEN for i in graph.inputs)
    assert all(len(n.attrs["values"]) <= MOST_WRITTEN for n in graph.nodes if n.op.name == "literal")
