"""Kernels run at the same time only where none writes what another reads or writes; byte by byte, for random ranges."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

from dslc.runtime.cpu import native


def spans(rng: random.Random) -> list[range]:
    starts = [rng.randrange(40) for _ in range(rng.randrange(3))]
    return [range(start, start + rng.randrange(1, 5)) for start in starts]


def test_a_wave_has_no_two_kernels_that_meet(fuzz_count: Callable[[int], int]) -> None:
    rng, waits = random.Random(3), 0
    for _ in range(fuzz_count(2000)):
        wave, read, written = native.Wave(), set[int](), set[int]()
        for _ in range(12):
            reads, writes = spans(rng), spans(rng)
            r, w = ({at for span in side for at in span} for side in (reads, writes))
            meets = bool(r & written or w & written or w & read)
            assert wave.takes(reads, writes) is not meets
            if meets:
                read, written, waits = set(), set(), waits + 1
            read |= r
            written |= w
    assert waits > 100


def test_a_wave_is_not_wider_than_it_may_be() -> None:
    """So that to find waves takes time linear in kernels."""
    wave, ends = native.Wave(), []
    for number in range(1000):
        if not wave.takes([range(2 * number, 2 * number + 1)], []):
            ends.append(number)
    gaps = {b - a for a, b in pairwise(ends)}
    assert ends and gaps == {native._WIDEST_WAVE + 1}
