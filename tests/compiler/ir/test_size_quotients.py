"""Quotients of sizes: equal quotients are equal objects, and bounds hold for every value of the dims."""

from __future__ import annotations

import random

import pytest

from dslc.compiler.ir.size_text import AttrReader
from dslc.compiler.ir.sizes import Dim, Size, bind, bounds, floor_div, of_dim
from dslc.runtime.artifact.interface import size_value

H = of_dim(Dim("H", 8, 40, 8))
W = of_dim(Dim("W", 1, 9, 4))


def test_equal_quotients_are_equal() -> None:
    assert floor_div(H - 2, 2) + 1 == floor_div(H, 2)
    assert floor_div(H - 3, 2) + 1 == floor_div(H - 1, 2)
    assert floor_div(floor_div(H, 2), 2) == floor_div(H, 4)
    assert floor_div(floor_div(H - 1, 2), 2) + 1 == floor_div(H + 3, 4)
    assert -floor_div(-H, 2) == floor_div(H + 1, 2)
    assert floor_div(2 * H + 1, 4) == floor_div(H, 2)
    assert floor_div(3 * H, 2) == H + floor_div(H, 2)


def test_quotients_that_differ_for_some_size_are_different() -> None:
    assert floor_div(H, 2) != floor_div(H + 1, 2)
    assert floor_div(floor_div(H + 1, 2), 2) != floor_div(H, 4)
    assert 2 * floor_div(H, 2) != H


def test_part_of_an_axis_lies_inside_it() -> None:
    assert bounds(H - floor_div(H, 2))[0] == 4
    assert bounds(H - floor_div(H - 2, 2) - 1)[0] >= 0
    assert bounds(H - floor_div(3 * H, 4))[0] >= 0
    assert bounds(floor_div(H, 2) - floor_div(H, 3))[0] >= 0


def test_a_size_prints_as_the_language_reads_it() -> None:
    half = floor_div(H, 2)
    shown = [half, floor_div(H + 1, 3), 2 * half, half * W, W - half, -half, 3 * floor_div(half * W + 1, 4) - 1]
    assert [str(size) for size in shown] == [
        "H//2", "(H + 1)//3", "2*(H//2)", "(H//2)*W", "-(H//2) + W", "-(H//2)", "3*(((H//2)*W + 1)//4) - 1",
    ]  # fmt: skip


@pytest.mark.parametrize("case", range(40))
def test_random_quotients_against_ints(case: int, fuzz_seed: int) -> None:
    draw = random.Random(f"{fuzz_seed} {case}")
    size: Size = H
    steps: list[tuple[str, int]] = []
    for _ in range(draw.randint(1, 7)):
        step = (draw.choice(["+", "*", "//", "-//", "+W", "+H"]), draw.choice([-3, -2, -1, 1, 2, 3, 4, 5]))
        steps.append(step)
        size = _stepped(size, step, H, W)
    reader = AttrReader()
    reader.dims = {"H": Dim("H", 8, 40, 8), "W": Dim("W", 1, 9, 4)}
    assert reader.value(str(size)) == size
    low, high = bounds(size)
    for h in range(8, 41):
        for w in range(1, 10):
            value: Size = h
            for step in steps:
                value = _stepped(value, step, h, w)
            assert bind(size, {"H": h, "W": w}) == value, (size, steps)
            assert size_value(str(size), {"H": h, "W": w}) == value, (size, steps)
            assert low <= value <= high, (size, steps)


def _stepped(size: Size, step: tuple[str, int], h: Size, w: Size) -> Size:
    name, number = step
    match name:
        case "+":
            return size + number
        case "*":
            return size * number
        case "//":
            return floor_div(size, abs(number))
        case "-//":
            return -floor_div(-size, abs(number))
        case "+W":
            return size + w * number
    return size + h * number
