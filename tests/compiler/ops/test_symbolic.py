"""Types with dims: an op is checked once for every batch size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dslc.compiler.check.arithmetic import _of_sizes
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder, Mismatch
from dslc.compiler.ir.sizes import Dim, Size, of_dim
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.registry import ops
from dslc.dsl.span import Source, Span

B = of_dim(Dim("B", 1, 64, 8))
T = of_dim(Dim("T", 0, 32, 16))
FLOAT, I32, B1 = DType.FLOAT, DType.I32, DType.B1
Shape = tuple[Size, ...]

FITS: list[tuple[str, list[tuple[DType, Shape]], dict[str, Any], tuple[DType, Shape]]] = [
    ("add", [(FLOAT, (B, 8)), (FLOAT, (8,))], {}, (FLOAT, (B, 8))),
    ("lt", [(FLOAT, (B, 1)), (FLOAT, (1, T))], {}, (B1, (B, T))),
    ("where", [(B1, (B,)), (I32, ()), (I32, (B,))], {}, (I32, (B,))),
    ("full", [], {"value": B, "dtype": FLOAT, "shape": (B, 2)}, (FLOAT, (B, 2))),
    ("full", [], {"value": B * 3, "dtype": DType.U8, "shape": ()}, (DType.U8, ())),
    ("reshape", [(FLOAT, (B, 4, T))], {"shape": (B * T, 4)}, (FLOAT, (B * T, 4))),
    ("transpose", [(FLOAT, (B, 4, T))], {"perm": (2, 0, 1)}, (FLOAT, (T, B, 4))),
    ("expand", [(FLOAT, (1, 8))], {"shape": (B, 8)}, (FLOAT, (B, 8))),
    ("sum_to", [(FLOAT, (B, 8))], {"shape": (8,)}, (FLOAT, (8,))),
    ("slice", [(FLOAT, (64, 8))], {"starts": (0, 0), "stops": (B, 8), "steps": (1, 2)}, (FLOAT, (B, 4))),
    ("slice", [(FLOAT, (B, T))], {"starts": (0, 0), "stops": (B, T), "steps": (1, 1)}, (FLOAT, (B, T))),
    ("pad", [(FLOAT, (B,))], {"low": (1,), "high": (2,), "interior": (1,), "value": 0.0}, (FLOAT, (2 * B + 2,))),
    ("concat", [(FLOAT, (B, 8)), (FLOAT, (T, 8))], {"axis": 0}, (FLOAT, (B + T, 8))),
    ("sum", [(I32, (B, 8))], {"over": (0,), "keep": True}, (DType.I64, (1, 8))),
    ("sum", [(FLOAT, (B, T))], {"over": (1,), "keep": False}, (FLOAT, (B,))),
    ("mean", [(FLOAT, (B, 8))], {"over": (0, 1), "keep": False}, (FLOAT, ())),
    ("softmax", [(FLOAT, (T, B))], {"axis": 1}, (FLOAT, (T, B))),
    ("argmax", [(FLOAT, (T, B))], {"axis": 1}, (I32, (T,))),
    ("prod", [(I32, (B, T))], {"over": (1,), "keep": False}, (DType.I64, (B,))),
    ("norm", [(FLOAT, (B, T))], {"over": (1,), "keep": True, "p": 2.0}, (FLOAT, (B, 1))),
    ("cumsum", [(I32, (B, T))], {"axis": 1, "reverse": False}, (DType.I64, (B, T))),
    ("argmin", [(FLOAT, (T, B))], {"axis": 1}, (I32, (T,))),
    ("gather", [(FLOAT, (B, 9)), (I32, (B, T))], {"axis": 1}, (FLOAT, (B, T))),
    ("scatter_add", [(FLOAT, (B, T)), (I32, (B, T))], {"axis": 1, "count": B}, (FLOAT, (B, B))),
    ("tri", [], {"shape": (B, T), "diagonal": 0}, (B1, (B, T))),
    ("roll", [(FLOAT, (B, T))], {"shifts": (3, -9)}, (FLOAT, (B, T))),
    ("arange", [], {"shape": (T,), "start": 3, "step": 1}, (I32, (T,))),
    ("slice", [(FLOAT, (B, 8))], {"starts": (B - 1, 6), "stops": (-1, 0), "steps": (-1, -4)}, (FLOAT, (B, 2))),
    ("interpolate", [(FLOAT, (T, 3, B))], {"size": (B * 2,), "mode": "linear"}, (FLOAT, (T, 3, 2 * B))),
    ("adaptive_avgpool", [(FLOAT, (T, 3, B))], {"size": (4,)}, (FLOAT, (T, 3, 4))),
    ("unfold", [(FLOAT, (T, 3, B))], {"k": (1,), "stride": (1,), "dilation": (2,)}, (FLOAT, (T, 3, 1, B))),
    ("fold", [(FLOAT, (T, 3, 2, B))], {"k": (2,), "stride": (1,), "dilation": (1,), "size": (B + 1,)},
     (FLOAT, (T, 3, B + 1))),
    ("matmul", [(FLOAT, (B, 4, T)), (FLOAT, (T, 5))], {"transpose_a": False, "transpose_b": False}, (FLOAT, (B, 4, 5))),
    ("matmul", [(FLOAT, (T, B)), (FLOAT, (8, T))], {"transpose_a": True, "transpose_b": True}, (FLOAT, (B, 8))),
    ("gather_rows", [(FLOAT, (9, 3)), (I32, (B, T))], {}, (FLOAT, (B, T, 3))),
    ("scatter_rows_add", [(FLOAT, (B, T, 3)), (I32, (B, T))], {"count": 9}, (FLOAT, (9, 3))),
    ("one_hot", [(I32, (B,))], {"count": 9, "dtype": FLOAT}, (FLOAT, (B, 9))),
]  # fmt: skip

WRONG: list[tuple[str, list[tuple[DType, Shape]], dict[str, Any], str]] = [
    ("add", [(FLOAT, (B, 8)), (FLOAT, (T, 8))], {}, "E0301"),
    ("add", [(FLOAT, (B,)), (I32, (B,))], {}, "E0204"),
    ("full", [], {"value": B * 4, "dtype": DType.U8, "shape": ()}, "E0209"),
    ("full", [], {"value": 1, "dtype": B1, "shape": ()}, "E0204"),
    ("full", [], {"value": 0.5, "dtype": I32, "shape": ()}, "E0204"),
    ("reshape", [(FLOAT, (B, 4))], {"shape": (T, 4)}, "E0302"),
    ("transpose", [(FLOAT, (B, 4))], {"perm": (0, 0)}, "E0306"),
    ("expand", [(FLOAT, (B, 8))], {"shape": (64, 8)}, "E0301"),
    ("slice", [(FLOAT, (32, 8))], {"starts": (0, 0), "stops": (B, 8), "steps": (1, 1)}, "E0304"),
    ("slice", [(FLOAT, (B, 8))], {"starts": (2, 0), "stops": (B, 8), "steps": (1, 1)}, "E0304"),
    ("slice", [(FLOAT, (B, 8))], {"starts": (0, 0), "stops": (B, 8), "steps": (1, 0)}, "E0209"),
    ("slice", [(FLOAT, (B, 8))], {"starts": (B, 7), "stops": (-1, 0), "steps": (-1, -1)}, "E0304"),
    ("slice", [(FLOAT, (B, 8))], {"starts": (B - 1, 7), "stops": (-2, 0), "steps": (-1, -1)}, "E0304"),
    ("slice", [(FLOAT, (B, 8))], {"starts": (B - 1, 3), "stops": (-1, 4), "steps": (-1, -1)}, "E0304"),
    ("pad", [(FLOAT, (T,))], {"low": (1,), "high": (2,), "interior": (1,), "value": 0.0}, "E0308"),
    ("pad", [(FLOAT, (B,))], {"low": (-1,), "high": (2,), "interior": (0,), "value": 0.0}, "E0209"),
    ("concat", [(FLOAT, (B, 8)), (FLOAT, (T, 8))], {"axis": 1}, "E0302"),
    ("concat", [(FLOAT, (B, 8)), (I32, (B, 8))], {"axis": 1}, "E0204"),
    ("mean", [(FLOAT, (B, T))], {"over": (1,), "keep": False}, "E0308"),
    ("max", [(FLOAT, (T,))], {"over": (0,), "keep": False}, "E0308"),
    ("softmax", [(FLOAT, (B, T))], {"axis": 1}, "E0308"),
    ("argmax", [(FLOAT, (B, T))], {"axis": 1}, "E0308"),
    ("matmul", [(FLOAT, (B, T)), (FLOAT, (B, T))], {"transpose_a": False, "transpose_b": False}, "E0203"),
    ("matmul", [(I32, (B, T)), (I32, (T, B))], {"transpose_a": False, "transpose_b": False}, "E0203"),
    ("gather_rows", [(FLOAT, (9, 3)), (FLOAT, (B,))], {}, "E0203"),
    ("argmin", [(FLOAT, (B, T))], {"axis": 1}, "E0308"),
    ("topk", [(FLOAT, (B, T))], {"axis": 0, "k": 2, "largest": True}, "E0209"),
    ("topk", [(FLOAT, (B, T))], {"axis": 1, "k": 1, "largest": True}, "E0308"),
    ("gather", [(FLOAT, (B, 9)), (I32, (T, 9))], {"axis": 1}, "E0302"),
    ("interpolate", [(FLOAT, (B, 3, T))], {"size": (9,), "mode": "nearest"}, "E0308"),
    ("adaptive_maxpool", [(FLOAT, (B, 3, T))], {"size": (9,)}, "E0308"),
    ("unfold", [(FLOAT, (B, 3, T))], {"k": (99,), "stride": (1,), "dilation": (1,)}, "E0308"),
    ("fold", [(FLOAT, (B, 3, 2, T))], {"k": (2,), "stride": (1,), "dilation": (1,), "size": (T + 5,)}, "E0302"),
    ("logical_not", [(FLOAT, (B,))], {}, "E0203"),
    ("neg", [(B1, (B,))], {}, "E0203"),
    ("powi", [(I32, (B,))], {"exponent": -1}, "E0203"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "attrs", "expected"), FITS)
def test_types_with_dims(name: str, inputs: list[Any], attrs: dict[str, Any], expected: Any) -> None:
    assert ops()[name].infer([TensorType(*t) for t in inputs], attrs) == (TensorType(*expected),)


@pytest.mark.parametrize(("name", "inputs", "attrs", "code"), WRONG)
def test_what_does_not_fit_is_refused(name: str, inputs: list[Any], attrs: dict[str, Any], code: str) -> None:
    with pytest.raises(Mismatch) as caught:
        ops()[name].infer([TensorType(*t) for t in inputs], attrs)
    assert caught.value.code == code
    assert caught.value.why


def _node(name: str, inputs: list[tuple[DType, Shape]], attrs: dict[str, Any]) -> Node:
    from dslc.compiler.ir.graph import Input, Kind

    return Builder().node(ops()[name], *(Input("x", Kind.DATA, TensorType(*t)).value for t in inputs), **attrs)


ROWS: list[tuple[str, list[tuple[DType, Shape]], dict[str, Any], list[int | None], tuple[int | None, ...] | None]] = [
    ("add", [(FLOAT, (B, 8)), (FLOAT, (8,))], {}, [0, None], (0,)),
    ("add", [(FLOAT, (B, B)), (FLOAT, (B,))], {}, [0, 0], None),
    ("reshape", [(FLOAT, (B, 4, 4))], {"shape": (B, 16)}, [0], (0,)),
    ("reshape", [(FLOAT, (B, T, 4))], {"shape": (B * T, 4)}, [0], (0,)),
    ("reshape", [(FLOAT, (3, B, 2, 4))], {"shape": (3, B, 8)}, [1], (1,)),
    ("reshape", [(FLOAT, (B, 8))], {"shape": (8, B)}, [0], None),
    ("transpose", [(FLOAT, (B, 4, 3))], {"perm": (2, 0, 1)}, [0], (1,)),
    ("slice", [(FLOAT, (B, 8))], {"starts": (0, 1), "stops": (B, 5), "steps": (1, 1)}, [0], (0,)),
    ("slice", [(FLOAT, (B, 8))], {"starts": (0, 1), "stops": (1, 5), "steps": (1, 1)}, [0], None),
    ("concat", [(FLOAT, (B, 8)), (FLOAT, (B, 2))], {"axis": 1}, [0, 0], (0,)),
    ("concat", [(FLOAT, (B, 8)), (FLOAT, (B, 8))], {"axis": 0}, [0, 0], None),
    ("sum", [(FLOAT, (B, 8))], {"over": (0,), "keep": False}, [0], None),
    ("sum", [(FLOAT, (3, B, 8))], {"over": (0,), "keep": False}, [1], (0,)),
    ("softmax", [(FLOAT, (B, 8))], {"axis": 1}, [0], (0,)),
    ("softmax", [(FLOAT, (B, 8))], {"axis": 0}, [0], None),
    ("matmul", [(FLOAT, (B, 8)), (FLOAT, (3, 8))], {"transpose_a": False, "transpose_b": True}, [0, None], (0,)),
    ("matmul", [(FLOAT, (8, B)), (FLOAT, (3, 8))], {"transpose_a": True, "transpose_b": True}, [1, None], (0,)),
    ("matmul", [(FLOAT, (3, 8)), (FLOAT, (8, B))], {"transpose_a": False, "transpose_b": False}, [None, 1], (1,)),
    ("matmul", [(FLOAT, (B, 8)), (FLOAT, (B, 8))], {"transpose_a": True, "transpose_b": False}, [0, 0], None),
    ("matmul", [(FLOAT, (B, 4, 8)), (FLOAT, (B, 8, 3))], {"transpose_a": False, "transpose_b": False}, [0, 0], (0,)),
    ("gather_rows", [(FLOAT, (9, 3)), (I32, (B, 5))], {}, [None, 0], (0,)),
    ("scatter_rows_add", [(FLOAT, (B, 3)), (I32, (B,))], {"count": 9}, [0, 0], None),
    ("take", [(FLOAT, (B, 9)), (I32, (5, 2))], {"axis": 1}, [0, None], (0,)),
    ("take", [(FLOAT, (9, B)), (I32, (5, 2))], {"axis": 0}, [1, None], (2,)),
    ("take", [(FLOAT, (9, B)), (I32, (5, 2))], {"axis": 1}, [1, None], None),
    ("take", [(FLOAT, (3, 9)), (I32, (B,))], {"axis": 1}, [None, 0], (1,)),
    ("take", [(FLOAT, (B, 9)), (I32, (B,))], {"axis": 1}, [0, 0], None),
    ("gather", [(FLOAT, (B, 9)), (I32, (B, 2))], {"axis": 1}, [0, 0], (0,)),
    ("gather", [(FLOAT, (9, 3)), (I32, (B, 3))], {"axis": 0}, [None, 0], (0,)),
    ("gather", [(FLOAT, (B, 3)), (I32, (B, 3))], {"axis": 0}, [0, 0], None),
    ("scatter_add", [(FLOAT, (B, 2)), (I32, (B, 2))], {"axis": 1, "count": 9}, [0, 0], (0,)),
    ("scatter_add", [(FLOAT, (B, 2)), (I32, (B, 2))], {"axis": 0, "count": B}, [0, 0], None),
    ("cumsum", [(FLOAT, (B, 2))], {"axis": 1, "reverse": False}, [0], (0,)),
    ("cumsum", [(FLOAT, (B, 2))], {"axis": 0, "reverse": False}, [0], None),
    ("topk", [(FLOAT, (B, 4))], {"axis": 1, "k": 2, "largest": True}, [0], (0, 0)),
    ("topk", [(FLOAT, (B, 4))], {"axis": 0, "k": 1, "largest": True}, [0], None),
    ("sort", [(FLOAT, (B, 4))], {"axis": 1, "descending": True}, [0], (0, 0)),
    ("sort", [(FLOAT, (B, 4))], {"axis": 0, "descending": True}, [0], None),
    ("unsort", [(FLOAT, (B, 4)), (I32, (B, 4))], {"axis": 1}, [0, 0], (0,)),
    ("unsort", [(FLOAT, (B, 4)), (I32, (B, 4))], {"axis": 0}, [0, 0], None),
    ("slice", [(FLOAT, (B, 4))], {"starts": (0, 3), "stops": (B, -1), "steps": (1, -1)}, [0], (0,)),
    ("slice", [(FLOAT, (B, 4))], {"starts": (B - 1, 0), "stops": (-1, 4), "steps": (-1, 1)}, [0], None),
    ("roll", [(FLOAT, (B, 4))], {"shifts": (0, -1)}, [0], (0,)),
    ("scatter_reduce", [(FLOAT, (B, 4)), (FLOAT, (B, 2)), (I32, (B, 2))], {"axis": 1, "how": "max"}, [0] * 3, (0,)),
    ("scatter_reduce", [(FLOAT, (4, B)), (FLOAT, (4, B)), (I32, (4, B))], {"axis": 1, "how": "max"}, [1] * 3, None),
    ("roll", [(FLOAT, (B, 4))], {"shifts": (1, 0)}, [0], None),
    ("interpolate", [(FLOAT, (B, 3, 4))], {"size": (8,), "mode": "linear"}, [0], (0,)),
    ("interpolate", [(FLOAT, (4, 3, B))], {"size": (8,), "mode": "linear"}, [2], None),
    ("adaptive_maxpool", [(FLOAT, (B, 3, 4))], {"size": (3,)}, [0], (0, 0)),
    ("adaptive_avgpool", [(FLOAT, (4, 3, B))], {"size": (3,)}, [2], None),
    ("unfold", [(FLOAT, (B, 3, 4))], {"k": (2,), "stride": (1,), "dilation": (1,)}, [0], (0,)),
    ("unfold", [(FLOAT, (4, 3, B))], {"k": (1,), "stride": (1,), "dilation": (1,)}, [2], None),
    ("path_loss", [(FLOAT, (B, 3, 4)), (B1, (B, 4)), (I32, (B,)), (I32, (B,))], {}, [0, 0, 0, 0], (0, 0)),
    ("path_loss", [(FLOAT, (B, 3, 4)), (B1, (B, 4)), (I32, (B,)), (I32, (B,))], {}, [0, None, 0, 0], None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "attrs", "axes", "expected"), ROWS)
def test_where_rows_lie(name: str, inputs: list[Any], attrs: dict[str, Any], axes: list[Any], expected: Any) -> None:
    assert ops()[name].rows(_node(name, inputs, attrs), axes) == expected


def test_index_ranges() -> None:
    ranges = {"gather": {"axis": 1}, "scatter_add": {"axis": 1, "count": 9}, "scatter_rows_add": {"count": 9}}
    for name, attrs in ranges.items():
        node = _node(name, [(FLOAT, (B, 9)), (I32, (B, 9))], attrs)
        assert [ops()[name].index_range(node, i) for i in (0, 1)] == [None, (0, 9)]


def test_an_index_outside_gives_nan() -> None:
    x = np.ones((2, 3))
    for wrong in (3, -1):
        index = np.array([[0, 1, 2], [0, wrong, 1]], np.int32)
        cases = (("gather", {"axis": 1}, [0, 1, 0]), ("scatter_add", {"axis": 1, "count": 3}, [1] * 3))
        for name, attrs, lost in cases:
            [y] = ops()[name].meaning([x, index], attrs)
            np.testing.assert_array_equal(np.isnan(y), [[0] * 3, lost])
            [y] = ops()[name].meaning([x.astype(np.int32), index], attrs)
            assert y.tolist() == [[1, 1, 1], [1, 0, 1] if name == "gather" else [1, 1, 0]]


def test_sizes_that_come_to_a_number_are_ints() -> None:
    for size, number in ((B + 3 - B, 3), (B * T - T * B, 0), (B * 0 + 5, 5), ((B + 2) * 3 - B * 3, 6)):
        assert type(size) is int and size == number
    assert not isinstance(B + 3, int)


def test_a_size_divided_by_one_is_itself() -> None:
    span = Span(Source("a.nn", ""), 0, 0)
    assert _of_sizes("//", B, 1, span) == B and _of_sizes("%", B, 1, span) == 0
    assert _of_sizes("//", B * 4, 2, span) == B * 2 and _of_sizes("%", B * 4, 2, span) == 0
