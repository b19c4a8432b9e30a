"""Gradients of parts that a value is read in: concatenated if they fit, and the same sum as with zeros."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from graphs.random_graphs import assert_same_bits, evaluate, feeds_of, graph_of, input_of

from dslc.compiler.ir.graph import Kind, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.passes.lower.gradient.differentiate import differentiate
from dslc.compiler.passes.lower.gradient.sum_gradients import total


def padded(b: Builder, x: Value, axis: int, low: int, high: int, value: float = 0.0, interior: int = 0) -> Value:
    def along(n: int) -> tuple[int, ...]:
        return tuple(n if a == axis else 0 for a in range(x.type.rank))

    return b(OPS["pad"], x, low=along(low), high=along(high), interior=along(interior), value=value)


def test_slices_of_a_whole_become_one_concat() -> None:
    x = input_of("x", Kind.PARAM, 4, 6, 3)
    b = Builder()
    squares = []
    for i in range(6):
        part = b(OPS["slice"], x.value, starts=(0, i, 0), stops=(4, i + 1, 3), steps=(1, 1, 1))
        squares.append(b(OPS["sum"], b(OPS["mul"], part, part), over=(0, 1, 2), keep=False))
    loss = squares[0]
    for each in squares[1:]:
        loss = b(OPS["add"], loss, each)
    gradient = differentiate(graph_of([x], {"loss": loss}), loss, [x.value])[x.value]
    graph = graph_of([x], {"result.g": gradient})
    names = [n.op.name for n in graph.nodes]
    assert names.count("concat") == 1 and "pad" not in names
    feeds = feeds_of(graph, 1)
    np.testing.assert_array_equal(evaluate(graph, feeds)["result.g"], 2 * feeds["x"])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_two_products_are_enough_and_one_stays(count: int) -> None:
    b = Builder()
    inputs = [input_of(f"x{i}", Kind.DATA, *((8, 1), (1, 8))[i % 2]) for i in range(2 * count)]
    terms = [b(OPS["matmul"], x.value, y.value, transpose_a=False, transpose_b=False)
             for x, y in zip(inputs[::2], inputs[1::2])]  # fmt: skip
    names = [n.op.name for n in graph_of(inputs, {"result.y": total(terms)}).nodes]
    assert names == (["matmul"] if count == 1 else ["concat", "concat", "matmul"])


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_products_of_a_shared_weight_become_one(transposed: tuple[bool, bool]) -> None:
    ta, tb = transposed
    b, inputs, terms = Builder(), [], []
    for i in range(5):
        inner = i % 2 + 1
        left = input_of(f"a{i}", Kind.DATA, *((inner, 8) if ta else (8, inner)))
        right = input_of(f"b{i}", Kind.DATA, *((8, inner) if tb else (inner, 8)))
        inputs += [left, right]
        terms.append(b(OPS["matmul"], left.value, right.value, transpose_a=ta, transpose_b=tb))
    plain = terms[0]
    for term in terms[1:]:
        plain = b(OPS["add"], plain, term)
    found = total(terms)
    assert [n.op.name for n in graph_of(inputs, {"result.y": found}).nodes] == ["concat", "concat", "matmul"]
    graph = graph_of(inputs, {"result.plain": plain, "result.total": found})
    values = evaluate(graph, {name: np.round(4 * x) for name, x in feeds_of(graph, 2).items()})
    np.testing.assert_array_equal(values["result.plain"], values["result.total"])


def test_products_of_much_stay_apart() -> None:
    b = Builder()
    given = [input_of(f"x{i}", Kind.DATA, 50, 4) for i in range(4)]
    terms = [b(OPS["matmul"], x.value, y.value, transpose_a=True, transpose_b=False)
             for x, y in (given[:2], given[2:])]  # fmt: skip
    names = [n.op.name for n in graph_of(given, {"result.y": total(terms)}).nodes]
    assert names == ["matmul", "matmul", "add"]


def test_what_is_no_plain_part_is_added() -> None:
    x, whole = input_of("x", Kind.DATA, 4), input_of("w", Kind.DATA, 5)
    b = Builder()
    for odd in (padded(b, x.value, 0, 0, 1, value=1.0), padded(b, input_of("y", Kind.DATA, 3).value, 0, 0, 0, 0.0, 1)):
        other = padded(b, input_of("z", Kind.DATA, 1).value, 0, 4, 0)
        graph = graph_of([], {"result.y": total([odd, other, whole.value])})
        assert "concat" not in {n.op.name for n in graph.nodes}


def test_sums_of_random_parts(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    concats = 0
    for case in range(fuzz_count(400)):
        size, axis = rng.randint(2, 7), rng.randrange(2)
        b, inputs, terms = Builder(), [], []
        for i in range(rng.randint(1, 9)):
            start = rng.randrange(size)
            stop = rng.choice((start, start + 1, rng.randint(start, size)))
            own = rng.choice((axis, axis, 1 - axis))
            shape = [size, size]
            shape[own] = stop - start
            inputs.append(input_of(f"x{i}", Kind.DATA, *shape))
            terms.append(padded(b, inputs[-1].value, own, start, size - stop))
        if rng.random() < 0.5:
            inputs.append(input_of("w", Kind.DATA, size, size))
            terms.insert(rng.randrange(len(terms) + 1), inputs[-1].value)
        if rng.random() < 0.3:
            terms.append(rng.choice(terms))
        rng.shuffle(terms)
        plain = terms[0]
        for term in terms[1:]:
            plain = b(OPS["add"], plain, term)
        graph = graph_of(inputs, {"result.plain": plain, "result.total": total(terms)})
        concats += sum(n.op.name == "concat" for n in graph.nodes)
        # small integers: their sums are exact in any order, and 0 + -0 does not come up
        feeds = {name: np.round(4 * x) + 0.0 for name, x in feeds_of(graph, case).items()}
        found = evaluate(graph, feeds)
        assert_same_bits({"y": found["result.plain"]}, {"y": found["result.total"] + 0.0})
    assert concats > 0  # about two of five cases have one; none of 40 has once in 10**8 seeds
