"""einsum of one to several tensors: numpy's values, the gradients, the order of products, what is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from op_laws.evaluation import run
from op_laws.function_gradients import weights_of, with_gradients
from op_laws.recorder import Recorder, value_of

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Dim, of_dim
from dslc.compiler.ir.types import DType

B = of_dim(Dim("B", 1, 64, 8))
PATTERNS = [
    "ij,jk->ik", "ij,kj->ik", "ji,jk->ki", "bij,bjk->bik", "bij,bkj->bik", "bij,jk->bik", "ij,bjk->bik", "ij,kl->",
    "bhqd,bhkd->bhqk", "bqhd,bkhd->bhqk", "i,j->ij", "i,i->", "i,i->i", "ij,ij->ij", "ij,ij->", "ij,ij->j", "ij,k->j",
    "ijk,kj->i", "abc,cad->bd", "abc,dba->cd", " b i j , b j -> i b", "a,->a", ",->",
    "ij->ji", "ij->j", "ij->", "ij->ij", "ii->i", "ii->", "bii->b", "iji->ij", "iii->i", "iijj->ji", "i->i", "->",
    "ii,i->i", "iij,jkk->ik", "ij,jj->i", "ij,jk,kl->il", "ij,ik,il->jkl", "i,j,k->kij", "ij,jk,kl,ld->id",
    "bi,bj,ijk->bk", "ij,kl,a->jka", "i,i,i->", "a,b,c,d,e->", "ii,ij,jj->j", ",,i->i",
]  # fmt: skip
SIZES = dict(zip("abcdehijklq", (2, 3, 4, 5, 2, 2, 3, 1, 4, 2, 3)))


def drawn(pattern: str, sizes: dict[str, int], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng([seed, len(pattern)])
    sides = "".join(pattern.split()).partition("->")[0].split(",")
    return [rng.uniform(-2, 2, [sizes[c] for c in side]) for side in sides]


def assert_numpys(pattern: str, xs: list[np.ndarray]) -> None:
    expected, values = np.einsum(pattern, *xs), [value_of(x) for x in xs]
    y = Recorder(DType.F64).build("einsum", pattern, *values)
    assert y.type.shape == expected.shape
    np.testing.assert_allclose(run([y], dict(zip(values, xs)))[0], expected, rtol=1e-12, atol=1e-12, err_msg=pattern)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_einsum_is_numpys(pattern: str) -> None:
    assert_numpys(pattern, drawn(pattern, SIZES))


def test_random_einsums_are_numpys() -> None:
    rng = np.random.default_rng(3)
    for number in range(250):
        letters = list("abcde")
        sides = ["".join(rng.choice(letters, rng.integers(0, 5))) for _ in range(rng.integers(1, 6))]
        every = sorted(set("".join(sides)))
        out = "".join(rng.permutation(every)[: rng.integers(0, len(every) + 1)])
        pattern = f"{','.join(sides)}->{out}"
        assert_numpys(pattern, drawn(pattern, {c: int(rng.integers(0, 4)) for c in letters}, number))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_gradient_is_the_einsum_that_leaves_one_tensor_out(pattern: str) -> None:
    """Of the sum of results times weights; compared along each element by the linearity in each tensor."""
    xs = drawn(pattern, SIZES, 1)
    [y], gradients = with_gradients(lambda call, *vs: call.build("einsum", pattern, *vs), xs)
    for number, (x, found) in enumerate(zip(xs, gradients, strict=True)):
        slope = np.zeros_like(x)
        for at in np.ndindex(x.shape):
            unit = np.zeros_like(x)
            unit[at] = 1.0
            parts = np.einsum(pattern, *xs[:number], unit, *xs[number + 1 :])
            slope[at] = np.sum(parts * weights_of(y.shape))
        np.testing.assert_allclose(found, slope, rtol=1e-11, atol=1e-12)


def orders(factors: list[frozenset[str]], out: frozenset[str], sizes: dict[str, int]) -> Iterator[int]:
    """The multiplications of every order of products, by trying all."""
    if len(factors) < 2:
        yield 0
    for i, j in combinations(range(len(factors)), 2):
        rest = [f for k, f in enumerate(factors) if k not in (i, j)]
        both = factors[i] | factors[j]
        kept = both & (out.union(*rest) if rest else out)
        work = math.prod(sizes[c] for c in both)
        for more in orders([*rest, kept], out, sizes):
            yield work + more


def products(value: Value) -> list[Node]:
    """The nodes that multiply."""
    seen: dict[Node, None] = {}
    stack = [value]
    while stack:
        node = stack.pop().producer
        if isinstance(node, Node) and node not in seen:
            seen[node] = None
            stack += node.inputs
    return [node for node in seen if node.op.name in ("matmul", "mul")]


def multiplications(node: Node) -> int:
    first, shape = node.inputs[0].type.ints, node.types[0].ints
    return math.prod(shape) * (first[-1] if node.op.name == "matmul" else 1)


@pytest.mark.parametrize("seed", range(12))
def test_the_order_has_the_fewest_multiplications(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = {c: int(n) for c, n in zip("abcdef", rng.integers(2, 30, 6))}
    pattern = ["ab,bc,cd->ad", "ab,bc,cd,de->ae", "abc,cd,be,def->af", "ab,ac,ad->bcd", "ab,cb,cd,ef,fd->ae"][seed % 5]
    given, _, out = pattern.partition("->")
    call = Recorder(DType.F64)
    y = call.build("einsum", pattern, *(call.tensor(*(sizes[c] for c in side)) for side in given.split(",")))
    least = min(orders([frozenset(side) for side in given.split(",")], frozenset(out), sizes))
    assert sum(map(multiplications, products(y))) == least


def test_einsum_with_dims_is_one_product() -> None:
    call = Recorder()
    q, k = call.tensor(B, 6, 2, 8), call.tensor(B, 6, 2, 8)
    y = call.build("einsum", "bqhd,bkhd->bhqk", q, k)
    assert y.type.shape == (B, 2, 6, 6)
    producer: Any = y.producer
    assert producer.op.name == "matmul"


def test_einsum_leaves_the_transpose_to_the_product() -> None:
    call = Recorder()
    y: Any = call.build("einsum", "bij,bkj->bik", call.tensor(B, 4, 8), call.tensor(B, 2, 8)).producer
    assert y.op.name == "matmul" and y.attrs["transpose_b"]
    assert all(not hasattr(v.producer, "op") for v in y.inputs)


@pytest.mark.parametrize(
    ("pattern", "shapes", "code", "text"),
    [
        ("ij,jk", [(B, 8), (B, 8)], "E0203", "not a pattern"),
        ("ij->ji", [(B, 8), (B, 8)], "E0302", "describes 1 operands, there are 2"),
        ("ij,jk,kl->il", [(8, 8), (8, 8)], "E0302", "describes 3 operands, there are 2"),
        ("ij,jk->ii", [(8, 8), (8, 8)], "E0203", "occurs twice"),
        ("ij,jk->iz", [(8, 8), (8, 8)], "E0203", "`z` of the result"),
        ("ij,jk->ik", [(B, 8), (B, 8)], "E0302", "`j` is 8 and B"),
        ("ijk,jk->ik", [(B, 8), (B, 8)], "E0302", "names 3 axes"),
        ("ii->i", [(8, 7)], "E0302", "`i` is 8 and 7"),
        ("ii->i", [(B, B)], "E0303", "a diagonal"),
        (",".join("a" * 11) + "->a", [(2,)] * 11, "E0209", "of 11 tensors"),
    ],
)
def test_what_does_not_fit_is_refused(pattern: str, shapes: list[Any], code: str, text: str) -> None:
    call = Recorder()
    with pytest.raises(Mismatch) as caught:
        call.build("einsum", pattern, *(call.tensor(*shape) for shape in shapes))
    assert caught.value.code == code and text in caught.value.why


def test_integers_are_refused() -> None:
    call = Recorder()
    with pytest.raises(Mismatch) as caught:
        call.build("einsum", "ij,ik->jk", call.tensor(2, 3), call.tensor(2, 3, dtype=DType.I32))
    assert caught.value.code == "E0204"
