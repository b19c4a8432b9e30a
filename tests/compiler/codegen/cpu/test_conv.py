"""Convolutions and their gradients as kernels, held against the ops' numpy meanings in f64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from cpu_kernels.kernels import ALLOWED, Loaded, compile_kernel, guarded, runnable_levels
from thinning import thinned

from dslc.compiler.codegen.cpu.contraction import parts
from dslc.compiler.codegen.cpu.contraction.conv import MAX_CLASSES, Conv
from dslc.compiler.codegen.cpu.contraction.layouts import Window
from dslc.compiler.codegen.cpu.contraction.lower import steps_of
from dslc.compiler.codegen.cpu.contraction.pack import Pad, Place
from dslc.compiler.codegen.cpu.contraction.steps import Steps
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.spatial import conv as ops

NUMPY = {DType.F32: np.float32, DType.F64: np.float64}
Ints = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """x [batch, channels, *size] and w [out, channels/groups, *k]."""

    batch: int
    channels: int
    out: int
    size: Ints
    k: Ints
    stride: Ints = ()
    pad: Ints = ()
    dilation: Ints = ()
    groups: int = 1

    def per_axis(self, given: Ints, default: int) -> Ints:
        return given or (default,) * len(self.size)

    def attrs(self, **more: object) -> dict[str, object]:
        found: dict[str, object] = {"stride": self.per_axis(self.stride, 1), "pad": self.per_axis(self.pad, 0)}
        return found | {"dilation": self.per_axis(self.dilation, 1), "groups": self.groups} | more

    def spec(self, dtype: DType) -> Conv:
        attrs = (self.per_axis(self.stride, 1), self.per_axis(self.pad, 0), self.per_axis(self.dilation, 1))
        space = tuple(Window(*x) for x in zip(self.size, self.k, *attrs))
        return Conv(dtype, self.batch, self.groups, self.channels // self.groups, self.out // self.groups, space)


CASES = [
    Case(1, 1, 1, (1, 1), (1, 1)),
    Case(2, 3, 4, (5, 6), (3, 3)),
    Case(2, 3, 5, (7, 6), (3, 3), (2, 2), (1, 1)),
    Case(2, 4, 6, (9, 8), (3, 3), (2, 2), (2, 2), (2, 2), 2),
    Case(2, 3, 4, (8, 9), (2, 3), (3, 2), (0, 1), (2, 1)),
    Case(1, 2, 3, (9, 9), (3, 3), (4, 4), (1, 1)),  # elements that no window meets
    Case(1, 2, 3, (3, 2), (2, 1), (1, 2), (3, 4)),  # windows of padding alone
    Case(2, 2, 3, (9, 3), (2, 2), (1, 1), (0, 3), (5, 7)),  # further apart within a window than windows
    Case(2, 6, 6, (9, 9), (3, 3), pad=(1, 1), groups=6),  # by channel
    Case(2, 6, 12, (9, 9), (3, 3), (2, 2), (1, 1), groups=6),
    Case(2, 3, 4, (7, 9), (1, 1), (2, 2)),
    Case(2, 20, 37, (11, 13), (3, 5), (2, 3), (1, 2), (2, 1)),
    Case(3, 2, 2, (5, 40), (1, 3), pad=(0, 1)),
    Case(1, 3, 4, (6, 6), (6, 6)),  # one window
    Case(1, 2, 2, (3, 3), (2, 2), pad=(2, 2)),  # more padding than the window needs
    Case(4, 1, 6, (28, 28), (5, 5), pad=(2, 2)),
    Case(8, 6, 16, (14, 14), (5, 5)),
    Case(2, 64, 70, (10, 10), (3, 3), pad=(1, 1)),
    Case(2, 40, 33, (9, 9), (3, 3), (2, 2), (1, 1)),
    Case(1, 2, 3, (7,), (3,), pad=(1,)),
    Case(2, 3, 4, (50,), (4,), (2,), (3,), (3,)),
    Case(2, 2, 3, (4, 5, 6), (2, 3, 1), (1, 2, 1), (1, 1, 0)),
    Case(1, 4, 4, (5, 4, 6), (3, 3, 3), (1, 1, 2), (1, 1, 1), groups=2),
]


def _run(
    steps: Steps, exact: np.ndarray, size: np.ndarray, inputs: list[np.ndarray], dtype: DType, level: str | None
) -> np.ndarray:
    """``size``: the same sums of the absolute values. Tolerance: one rounding for each of about 4,000 terms at most."""
    loaded = Loaded(steps, level)
    assert loaded.foreign <= ALLOWED
    out, around = guarded(exact.shape, NUMPY[dtype])
    loaded.run(inputs, [out])
    terms = max(8, min(4000, inputs[0].size))
    assert (np.abs(out - exact) <= terms * np.finfo(NUMPY[dtype]).eps * size).all()
    assert np.isnan(around[:32]).all() and np.isnan(around[-32:]).all()
    for slices in (2, 5):
        again = np.full_like(out, np.nan)
        loaded.run(inputs, [again], slices)
        assert again.tobytes() == out.tobytes(), slices
    return out


def _check(case: Case, dtype: DType, rng: np.random.Generator, level: str | None = None) -> list[np.ndarray]:
    spec = case.spec(dtype)
    x = rng.standard_normal((case.batch, case.channels, *case.size)).astype(NUMPY[dtype])
    w = rng.standard_normal((case.out, case.channels // case.groups, *case.k)).astype(NUMPY[dtype])
    dy = rng.standard_normal((case.batch, case.out, *(s.count for s in spec.space))).astype(NUMPY[dtype])
    back = spec.input_gradient()
    assert back is not None
    found = []
    for steps, op, attrs, inputs in (
        (spec.forward(), ops.conv, case.attrs(), [x, w]),
        (back, ops.conv_dgrad, case.attrs(size=case.size), [dy, w]),
        (spec.weight_gradient(), ops.conv_wgrad, case.attrs(size=case.k), [x, dy]),
    ):
        wide = [v.astype(np.float64) for v in inputs]
        [exact] = op.meaning(wide, attrs)
        [size] = op.meaning([np.abs(v) for v in wide], attrs)
        found.append(_run(steps, exact, size, inputs, dtype, level))
    return found


#: Input gradients with few tasks and sums so long that these are computed in parts; some pixels are of other classes.
IN_PARTS = [
    Case(1, 60, 1040, (2, 6), (3, 1), (2, 1), (1, 0)),
    Case(1, 60, 1040, (4, 5), (1, 1), (2, 1)),  # pixels that no window meets stay 0
    Case(1, 512, 1040, (3, 1), (1, 1), (2, 2)),  # pixels apart in memory
]


@pytest.mark.parametrize("case", IN_PARTS, ids=str)
def test_parts_of_a_sum_leave_pixels_of_other_classes(case: Case, fuzz_seed: int) -> None:
    back = case.spec(DType.F32).input_gradient()
    assert back is not None and any(isinstance(step.kernel, Place) for step in back.steps)
    _check(case, DType.F32, np.random.default_rng(fuzz_seed))


#: Borders that windows meet by some taps only.
BORDERED = [
    Case(2, 20, 37, (9, 9), (3, 3), pad=(4, 4), dilation=(4, 4)),
    Case(1, 3, 4, (5, 6), (3, 3), pad=(1, 1)),
    Case(2, 4, 6, (9, 8), (3, 3), (2, 1), (5, 3), (4, 3), 2),
    Case(2, 5, 70, (30,), (5,), (1,), (14,), (7,)),
    Case(1, 4, 18, (5, 4, 6), (3, 1, 3), pad=(2, 0, 3), dilation=(2, 1, 3), groups=2),
    Case(1, 40, 33, (7, 7), (4, 2), pad=(3, 0), dilation=(2, 1)),
]


@pytest.mark.parametrize(("case", "dtype"), list(product(BORDERED, NUMPY)), ids=str)
def test_borders_are_left_out(case: Case, dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little that saves."""
    monkeypatch.setattr(parts, "_APART", 0.0)
    monkeypatch.setattr(parts, "_BEGUN", 0)
    assert not any(isinstance(step.kernel, Pad) for step in case.spec(dtype).forward().steps)
    assert not any(isinstance(step.kernel, Pad) for step in case.spec(dtype).weight_gradient().steps)
    _check(case, dtype, np.random.default_rng(0))


@pytest.mark.parametrize(("case", "dtype"), thinned(product(CASES, NUMPY), 5), ids=str)
def test_convolutions(case: Case, dtype: DType) -> None:
    _check(case, dtype, np.random.default_rng(0))


@pytest.mark.parametrize("case", [CASES[3], CASES[9], CASES[13], CASES[15]], ids=str)
def test_levels_give_the_same_bits(case: Case) -> None:
    runs = [_check(case, DType.F32, np.random.default_rng(1), level) for level in runnable_levels()]
    assert len({b"".join(y.tobytes() for y in ys) for ys in runs}) == 1


def test_random_convolutions(fuzz_count: Callable[..., int], fuzz_seed: int) -> None:
    rng = np.random.default_rng(fuzz_seed)
    wanted, tried = fuzz_count(60, 20), 0
    while tried < wanted:
        axes = int(rng.choice([1, 2, 2, 2, 3]))
        groups = int(rng.choice([1, 1, 2, 3]))
        channels, out = (groups * int(2 ** rng.uniform(0, 5)) for _ in range(2))
        size, k, stride, pad, dilation = (
            tuple(int(x) for x in rng.integers(low, high, axes))
            for low, high in ((1, 36 if axes < 3 else 9), (1, 5), (1, 4), (0, 4), (1, 4))
        )
        case = Case(int(rng.integers(1, 5)), channels, out, size, k, stride, pad, dilation, groups)
        if any(s.size + 2 * s.pad < s.dilation * (s.k - 1) + 1 for s in case.spec(DType.F32).space):
            continue
        if case.spec(DType.F32).input_gradient() is None:
            continue
        tried += 1
        _check(case, DType.F32 if rng.random() < 0.7 else DType.F64, rng)


def test_too_many_classes_are_refused() -> None:
    windows = (Window(20, 6, 5, 0, 1),) * 2
    assert len(windows) and MAX_CLASSES < 5 * 5
    assert Conv(DType.F32, 1, 1, 2, 2, windows).input_gradient() is None


@pytest.mark.parametrize("level", ["x86_64_v3", "x86_64_v4", "armv8_2"])
def test_every_level_compiles_soon(level: str, allowed: Callable[[float, float], bool]) -> None:
    spec = Case(64, 1, 6, (28, 28), (5, 5), pad=(2, 2)).spec(DType.F32)
    back = spec.input_gradient()
    assert back is not None
    for step in (*spec.forward().steps, *spec.weight_gradient().steps, *back.steps):
        data, seconds, foreign = compile_kernel(step.code, level)
        assert data[:4] == b"\x7fELF" and foreign <= ALLOWED
        assert allowed(seconds, 1.0)  # 0.15 on a machine with nothing else to do


@pytest.mark.parametrize("case", [CASES[3], CASES[8], CASES[17]], ids=str)
def test_nodes_become_these_kernels(case: Case) -> None:
    spec = case.spec(DType.F32)
    x = (case.batch, case.channels, *case.size)
    w = (case.out, case.channels // case.groups, *case.k)
    y = (case.batch, case.out, *(s.count for s in spec.space))
    for op, shapes, attrs, steps in (
        (ops.conv, (x, w), case.attrs(), spec.forward()),
        (ops.conv_dgrad, (y, w), case.attrs(size=case.size), spec.input_gradient()),
        (ops.conv_wgrad, (x, y), case.attrs(size=case.k), spec.weight_gradient()),
    ):
        inputs = [Input(f"x{i}", Kind.DATA, TensorType(DType.F32, s)).value for i, s in enumerate(shapes)]
        node = Builder().node(op, *inputs, **attrs)
        assert steps_of(node) == steps
