"""Laws that hold for every op, over the samples of each family. An op without samples fails here."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from op_laws.evaluation import apply, plain_attrs, type_of
from op_laws.sample_cases import OPS, SAMPLES, attrs_of, every_sample, gradients_of, node_of
from op_samples.sample import Sample

from dslc.compiler.ir.op import NoGradient, Op, Pointwise
from dslc.compiler.ir.scalar import argument, evaluate
from dslc.compiler.ir.types import DType, TensorType
from dslc.runtime.artifact.dtypes import numpy_dtype

FLOATS = {"f64": np.float64, "f32": np.float32}
EPS, ATOL, RTOL = 1e-6, 1e-5, 1e-3  # of central differences


def inputs_of(op: Op, sample: Sample, float_dtype: str = "f64") -> list[np.ndarray]:
    return [np.asarray(x, FLOATS[float_dtype]) if x.dtype == np.float64 else x for x in sample.arrays(op.name)]


def outputs_of(op: Op, sample: Sample, float_dtype: str = "f64") -> list[np.ndarray]:
    return apply(op, inputs_of(op, sample, float_dtype), attrs_of(sample, DType(float_dtype)))


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_every_op_has_samples() -> None:
    assert sorted(OPS) == sorted(SAMPLES)
    assert all(SAMPLES.values())


@pytest.mark.parametrize("float_dtype", list(FLOATS))
@every_sample()
def test_types_are_those_of_the_results(op: Op, sample: Sample, float_dtype: str) -> None:
    xs = inputs_of(op, sample, float_dtype)
    announced = op.infer([type_of(x) for x in xs], attrs_of(sample, DType(float_dtype)))
    got = outputs_of(op, sample, float_dtype)
    assert [(t.dtype.value, t.shape) for t in announced] == [(type_of(y).dtype.value, y.shape) for y in got]


@every_sample()
def test_types_hold_for_the_abstract_float(op: Op, sample: Sample) -> None:
    def abstract(t: TensorType) -> TensorType:
        return TensorType(DType.FLOAT, t.shape) if t.dtype is DType.F64 else t

    types = [type_of(x) for x in inputs_of(op, sample)]
    concrete = op.infer(types, attrs_of(sample, DType.F64))
    assert op.infer([abstract(t) for t in types], attrs_of(sample, DType.FLOAT)) == tuple(abstract(t) for t in concrete)


@every_sample(lambda op, sample: sample.reference is not None)
def test_meaning_is_that_of_the_reference(op: Op, sample: Sample) -> None:
    assert sample.reference is not None
    with np.errstate(all="ignore"):
        expected = sample.reference(*inputs_of(op, sample), **plain_attrs(attrs_of(sample, DType.F64)))
    expected = expected if isinstance(expected, tuple) else (expected,)
    got = outputs_of(op, sample)
    assert len(got) == len(expected)
    for y, e in zip(got, expected):
        if e is not None:
            assert y.shape == np.shape(e)
            np.testing.assert_allclose(y, e, rtol=1e-10, atol=1e-12)


@every_sample(lambda op, sample: sample.near)
def test_single_precision_is_near_double(op: Op, sample: Sample) -> None:
    for y, e in zip(outputs_of(op, sample, "f32"), outputs_of(op, sample), strict=True):
        np.testing.assert_allclose(y, e, rtol=sample.rtol, atol=sample.atol)


@pytest.mark.parametrize("float_dtype", list(FLOATS))
@every_sample(lambda op, sample: isinstance(op, Pointwise))
def test_scalar_tree_means_the_same(op: Op, sample: Sample, float_dtype: str) -> None:
    assert isinstance(op, Pointwise)
    xs = inputs_of(op, sample, float_dtype)
    attrs = attrs_of(sample, DType(float_dtype))
    [expected] = apply(op, xs, attrs)
    with np.errstate(all="ignore"):
        got = evaluate(op.scalar(attrs, *(argument(i) for i in range(op.arity))), xs)
    tolerance = 1e-13 if float_dtype == "f64" else 2e-6
    np.testing.assert_allclose(np.asarray(got).astype(expected.dtype), expected, rtol=tolerance, atol=tolerance)


@every_sample()
def test_repeats_bit_for_bit(op: Op, sample: Sample) -> None:
    for y, e in zip(outputs_of(op, sample, "f32"), outputs_of(op, sample, "f32"), strict=True):
        assert same(y, e)


@every_sample()
def test_gradient_is_the_central_difference(op: Op, sample: Sample) -> None:
    xs = inputs_of(op, sample)
    attrs = attrs_of(sample, DType.F64)
    ys = apply(op, xs, attrs)
    chosen = sample.outputs if sample.outputs is not None else range(len(ys))
    rng = np.random.default_rng(7)
    weights = [rng.uniform(0.5, 1.5, y.shape) if i in chosen and y.dtype == np.float64 else None
               for i, y in enumerate(ys)]  # fmt: skip
    if all(w is None for w in weights):
        return
    node = node_of(op, xs, attrs)
    feeds = dict(zip((*node.inputs, *node.outputs), (*xs, *ys)))
    wanted = [i for i, x in enumerate(xs) if x.dtype == np.float64] if sample.differentiable is None else list(
        sample.differentiable
    )  # fmt: skip
    try:
        gradients = gradients_of(op, node, feeds, weights)
    except NoGradient as refused:
        assert str(refused)
        assert not sample.differentiable
        return

    def loss() -> float:
        return sum(float(np.sum(w * y)) for w, y in zip(weights, apply(op, xs, attrs)) if w is not None)

    for i in wanted:
        got = np.zeros_like(xs[i]) if gradients[i] is None else gradients[i]
        expected = np.zeros_like(xs[i])
        for at in np.ndindex(xs[i].shape):
            kept = xs[i][at]
            xs[i][at] = kept + EPS
            above = loss()
            xs[i][at] = kept - EPS
            expected[at] = (above - loss()) / (2 * EPS)
            xs[i][at] = kept
        np.testing.assert_allclose(got, expected, rtol=RTOL, atol=ATOL, err_msg=f"input {i}")


@every_sample()
def test_gradient_in_single_precision_has_its_dtypes(op: Op, sample: Sample) -> None:
    xs, attrs = inputs_of(op, sample, "f32"), attrs_of(sample, DType.F32)
    ys = apply(op, xs, attrs)
    chosen = sample.outputs if sample.outputs is not None else range(len(ys))
    weights = [np.ones_like(y) if i in chosen and y.dtype == np.float32 else None for i, y in enumerate(ys)]
    if all(w is None for w in weights):
        return
    node = node_of(op, xs, attrs)
    try:
        found = gradients_of(op, node, dict(zip((*node.inputs, *node.outputs), (*xs, *ys))), weights)
    except NoGradient:
        return
    for gradient, x in zip(found, xs):
        assert gradient is None or gradient.dtype == x.dtype == np.float32


@every_sample()
def test_cost_counts_what_moves(op: Op, sample: Sample) -> None:
    xs, attrs = inputs_of(op, sample), attrs_of(sample, DType.F64)
    node = node_of(op, xs, attrs)
    cost = op.cost(node)
    written = sum(t.bytes for t in node.types)
    read = sum(t.bytes for t in node.input_types)
    assert cost.flops >= 0
    assert cost.bytes <= 2 * (read + written)
    if not op.view and op.name != "put_rows":  # which writes some rows of its results
        assert cost.bytes >= (read if isinstance(op, Pointwise) else 0) + written


@every_sample()
def test_rows_stay_apart_where_the_op_says_so(op: Op, sample: Sample) -> None:
    xs, attrs = inputs_of(op, sample), attrs_of(sample, DType.F64)
    node = node_of(op, xs, attrs)
    before = apply(op, xs, attrs)
    rng = np.random.default_rng(3)
    for axes in _row_axes(xs, op):
        claimed = op.rows(node, axes)
        if claimed is None:
            continue
        assert len(claimed) == len(before)
        # another first row of the batch: what lies in other rows may not move
        changed = list(xs)
        for i, axis in enumerate(axes):
            if axis is not None:
                changed[i] = np.array(xs[i])
                part = np.moveaxis(changed[i], axis, 0)[:1]
                part[...] = rng.permutation(part.reshape(-1)).reshape(part.shape)
                if part.dtype == np.float64:
                    part *= 0.75
        rows = next(xs[i].shape[a] for i, a in enumerate(axes) if a is not None)
        for y, e, axis in zip(apply(op, changed, attrs), before, claimed):
            if axis is None:
                assert same(y, e)
                continue
            assert y.shape[axis] % rows == 0
            rest = [np.moveaxis(v, axis, 0)[y.shape[axis] // rows :] for v in (y, e)]
            np.testing.assert_array_equal(*rest, err_msg=f"rows along {axes} are not rows along {claimed}")


def _row_axes(xs: list[np.ndarray], op: Op) -> list[list[int | None]]:
    """Each axis of each tensor alone, and axis 0 of all tensors that have the first one's number of rows."""
    tensors = xs[:-3] if op.random else xs
    cases: list[list[int | None]] = []
    for i, x in enumerate(tensors):
        for axis in range(x.ndim):
            if x.shape[axis] > 1:
                cases.append([axis if j == i else None for j in range(len(xs))])
    if tensors and tensors[0].ndim and tensors[0].shape[0] > 1:
        shared = [0 if x.ndim and x.shape[0] == tensors[0].shape[0] else None for x in tensors]
        cases.append([*shared, *(None for _ in xs[len(tensors) :])])
    return cases


@pytest.mark.parametrize("name", sorted(OPS))
def test_page_starts_with_the_name(name: str) -> None:
    page = inspect.getdoc(type(OPS[name])) or ""
    assert page.startswith(f"{name}(")


@pytest.mark.parametrize("name", sorted(OPS))
def test_needs_name_inputs_and_outputs(name: str) -> None:
    for alternative in OPS[name].needs:
        assert all(n[0] in "xy" and n[1:].isdigit() for n in alternative)


def test_all_dtypes_of_the_runtime_are_known() -> None:
    for dtype in DType:
        if dtype is not DType.FLOAT:
            assert numpy_dtype(dtype.value).itemsize == dtype.itemsize
