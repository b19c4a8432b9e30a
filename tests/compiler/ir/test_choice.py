"""Keys of problems, and which measured way is taken."""

from __future__ import annotations

import pytest

from dslc.compiler.ir.choice import NO_CHOICES, Choice, Choices, Measured, key_of
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.registry import ops


def matmul(rows: int, *, name: str = "m", same: bool = False, transpose: bool = False) -> Node:
    a = Input(f"{name}.a", Kind.DATA, TensorType(DType.BF16, (rows, rows))).value
    b = a if same else Input(f"{name}.b", Kind.PARAM, TensorType(DType.BF16, (rows, rows))).value
    attrs = {"transpose_a": False, "transpose_b": transpose}
    return Node(ops()["matmul"], (a, b), (TensorType(DType.BF16, (rows, rows)),), attrs, name=name)


def test_a_key_is_a_readable_line() -> None:
    assert key_of(matmul(64)) == (
        "matmul bf16[64, 64] bf16[64, 64] -> bf16[64, 64] transpose_a=False transpose_b=False"
    )


def test_a_key_depends_on_the_problem_alone() -> None:
    assert key_of(matmul(64)) == key_of(matmul(64, name="other"))
    different = {key_of(n) for n in (matmul(64), matmul(65), matmul(64, same=True), matmul(64, transpose=True))}
    assert len(different) == 4


def test_a_long_key_ends_in_a_digest() -> None:
    inputs = tuple(Input(f"x{i}", Kind.DATA, TensorType(DType.F32, (8, 8 + (i == 39)))).value for i in range(40))
    nodes = [
        Node(ops()["concat"], each, (TensorType(DType.F32, (8, 321)),), {"axis": 1}) for each in (inputs, inputs[::-1])
    ]
    keys = [*map(key_of, nodes)]
    assert keys[0] != keys[1]
    assert all(len(key) <= 160 and key.startswith("concat f32[8, ") for key in keys)


FAST = Measured(Choice("cudnn", "eng1", 1 << 20), 1e-6)
SMALL = Measured(Choice("cudnn", "eng2", 0), 2e-6)
SELF = Measured(Choice("own", "", 0), 3e-6)


@pytest.mark.parametrize(
    ("limit", "providers", "taken"),
    [
        (None, ("own", "cudnn"), FAST),
        (1 << 20, ("own", "cudnn"), FAST),
        ((1 << 20) - 1, ("own", "cudnn"), SMALL),
        (None, ("own",), SELF),
        (None, ("cublaslt",), None),
    ],
)
def test_the_best_permitted_way_is_taken(limit: int | None, providers: tuple[str, ...], taken: Measured | None) -> None:
    choices = Choices({"p": (FAST, SMALL, SELF)}, limit)
    assert choices.best("p", providers) == taken
    assert choices.best("q", providers) is None
    assert NO_CHOICES.best("p", providers) is None
