"""Differences of two locks, by kind."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from locks import block, random_lock, way

from dslc.compiler.lock.diff import KINDS, difference
from dslc.compiler.lock.model import Lock


def test_each_kind_of_difference() -> None:
    first, second = way(1e-6), way(2e-6, "cudnn", "eng1")
    a = Lock.of([block("gone"), block("same"), block("choice", ways=(first, second)), block("time"), block("notes")])
    b = Lock.of([
        block("new"),
        block("same"),
        block("choice", ways=(second, first)),
        block("time", ways=(way(1.1e-6),)),
        replace(block("notes"), spread=0.5),
    ])  # fmt: skip
    found = difference(a, b)
    assert [(each.kind, each.key) for each in found] == list(zip(KINDS, ("gone", "new", "choice", "time", "notes")))
    assert [each.change for each in found[:2]] == [None, None]
    assert [round(each.change or 0, 3) for each in found[2:]] == [1.0, 0.1, 0.0]
    choice = found[2].as_json()
    assert choice["a"] == "1 us, 0 bytes: own" and choice["b"] == "2 us, 0 bytes: cudnn eng1"


def test_a_lock_equals_itself_and_a_difference_is_seen_from_both_sides(fuzz_seed: int) -> None:
    for number in range(50):
        draw = Random(fuzz_seed * 100 + number)
        a, b = random_lock(draw), random_lock(draw)
        assert difference(a, a) == []
        there, back = difference(a, b), difference(b, a)
        assert {(d.key, d.gpu) for d in there} == {(d.key, d.gpu) for d in back}
        assert (not there) == (a == b)
        merged = a.merged(b)
        assert {d.kind for d in difference(b, merged)} <= {"only in B"}
