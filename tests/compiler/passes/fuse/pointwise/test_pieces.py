"""Slices that are views, and their places in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from graphs.byte_judge import is_sound
from graphs.layer_chain import planned
from graphs.plan_execution import executed
from graphs.random_graphs import assert_same_bits, build_for, evaluate, graph_of, input_of

from dslc.compiler.ir.build import SHARD
from dslc.compiler.ir.graph import Graph, Input, Kind, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Place, Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.verify.error import VerifyError
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ir.verify.program import verify_program
from dslc.compiler.passes.fuse.pointwise.pieces import pieces
from dslc.compiler.passes.plan.prepared_program import relocated

X = input_of("x", Kind.DATA, 6, 32)
LARGE = input_of("x", Kind.DATA, 8, 1 << 14)


def rows(first: int, last: int, source: Value = X.value, phase: Phase = Phase.FORWARD) -> Value:
    b, (_, columns) = Builder(name="split", phase=phase), source.type.ints
    return b(OPS["slice"], source, starts=(first, 0), stops=(last, columns), steps=(1, 1))


def op(name: str, *inputs: Value, phase: Phase = Phase.FORWARD, **attrs: tuple[int, ...]) -> Value:
    return Builder(phase=phase)(OPS[name], *inputs, **attrs)


def graph(*results: Value, of: Sequence[Input] = (X,)) -> Graph:
    return graph_of(list(of), {f"result.{n}": v for n, v in enumerate(results)})


def checked(before: Graph) -> int:
    """How many pieces there are. The planned program computes the graph, by the byte."""
    after = pieces(before)
    verify_graph(after)
    assert pieces(after) is after
    feeds = {i.name: np.random.default_rng(3).normal(size=i.value.type.ints).astype(np.float32) for i in before.inputs}
    expected = evaluate(before, feeds)
    assert_same_bits(expected, evaluate(after, feeds))
    build = build_for(after)
    program = planned(after, build)
    assert is_sound(program, build)
    assert_same_bits(expected, executed(program, build, feeds))
    return sum(node.op.name == "piece" for node in after.nodes)


def test_parts_along_the_first_axis(golden: Callable[[str, str], None]) -> None:
    before = graph(rows(0, 4), op("exp", rows(4, 6)))
    assert checked(before) == 2
    golden("passes/pieces.txt", f"before\n\n{format_graph(before)}\nafter\n\n{format_graph(pieces(before))}")


def test_parts_that_do_not_follow_one_another_are_copied() -> None:
    columns = op("slice", X.value, starts=(0, 0), stops=(6, 4), steps=(1, 1))
    every = op("slice", X.value, starts=(0, 0), stops=(6, 32), steps=(2, 1))
    assert checked(graph(columns, every, rows(3, 3))) == 0


def test_a_part_of_one_row_may_be_of_any_axis() -> None:
    one = input_of("x", Kind.DATA, 1, 64)
    part = op("slice", one.value, starts=(0, 16), stops=(1, 48), steps=(1, 1))
    assert checked(graph(op("exp", part), of=[one])) == 1


def test_kernels_read_only_aligned_pieces() -> None:
    odd = input_of("x", Kind.DATA, 6, 5)  # rows of 20 bytes
    assert checked(graph(rows(1, 2, odd.value), of=[odd])) == 1
    assert checked(graph(op("exp", rows(1, 2, odd.value)), of=[odd])) == 0
    assert checked(graph(op("exp", op("reshape", rows(1, 2, odd.value), shape=(5,))), of=[odd])) == 0
    assert checked(graph(op("reshape", rows(1, 2, odd.value), shape=(5,)), of=[odd])) == 1


def test_a_piece_of_a_piece() -> None:
    outer = rows(2, 6)
    assert checked(graph(op("exp", rows(1, 3, outer)), outer, rows(3, 4, op("reshape", outer, shape=(4, 32))))) == 3


def test_an_op_does_not_write_over_the_other_pieces() -> None:
    made = op("exp", X.value)
    first, second = rows(0, 3, made), rows(3, 6, made)
    assert checked(graph(op("exp", op("add", first, second)))) == 2  # add may write in place, but not over one of them
    assert checked(graph(op("add", op("neg", first), second))) == 2


def test_a_state_is_no_piece() -> None:
    a, b = (input_of(n, Kind.BUFFER, 3, 32) for n in "ab")
    made = op("exp", X.value)
    before = graph_of([X, a, b], {}, [(a, rows(0, 3, made)), (b, op("reshape", rows(3, 6, made), shape=(3, 32)))])
    assert checked(before) == 0


def test_a_result_is_no_piece_of_a_state_or_a_shard() -> None:
    state = input_of("x", Kind.PARAM, 6, 32)
    assert checked(graph(rows(0, 2, state.value), op("exp", rows(2, 4, state.value)), of=[state])) == 1
    made = op("exp", X.value)
    assert pieces(graph_of([X], {SHARD + "w": rows(0, 6 - 2, made)})).nodes[-1].op.name == "slice"


def test_a_tensor_does_not_live_longer_for_a_small_piece() -> None:
    made = op("exp", LARGE.value)
    early, whole = rows(0, 1, made), [rows(n, n + 4, made) for n in (0, 4)]
    later = [op("exp", part, phase=Phase.BACKWARD) for part in (early, *whole)]
    assert checked(graph(op("exp", early), of=[LARGE])) == 0
    assert checked(graph(op("neg", made), op("exp", early), of=[LARGE])) == 1  # it is needed in this phase in any case
    assert checked(graph(op("neg", made), later[0], of=[LARGE])) == 0
    assert checked(graph(op("neg", made), early, of=[LARGE])) == 0
    assert checked(graph(*later[1:], of=[LARGE])) == 2
    assert checked(graph(op("exp", whole[0]), later[2], of=[LARGE])) == 0
    assert checked(graph(made, later[0], of=[LARGE])) == 1  # a result, which stays
    assert checked(graph(rows(0, 1, LARGE.value), of=[LARGE])) == 1  # an input, too


@pytest.mark.parametrize("by", [-64, 4, 64])
def test_the_verifier_refuses_a_piece_elsewhere(by: int) -> None:
    before = pieces(graph(rows(2, 4), op("exp", rows(4, 6))))
    build = build_for(before)
    program = planned(before, build)
    for node in before.nodes:
        if node.op.name == "piece":
            memory = program.memory
            assert memory is not None
            place = memory.places[node.out]
            moved = {**memory.places, node.out: Place(place.region, place.offset + by)}
            wrong = dataclasses.replace(program, memory=dataclasses.replace(memory, places=moved))
            with pytest.raises(VerifyError, match="another address"):
                verify_program(wrong, build)
            assert not is_sound(wrong, build)


def test_pieces_of_prepared_tensors_move_with_them() -> None:
    first, second = (input_of(n, Kind.PREPARED, 6, 32) for n in "ab")
    part = op("exp", rows(2, 6, second.value))
    own = pieces(graph_of([second], {"result.y": part}))
    joint = planned(graph_of([first, second], {}), build_for(own))
    program = relocated(planned(own, build_for(own)), joint)
    assert program.memory is not None and joint.memory is not None
    start = joint.memory.places[second.value].offset
    assert start and program.memory.places[own.nodes[0].out] == Place("prepared", start + 2 * 128)


def test_a_program_without_slices_stays() -> None:
    before = Program("predict", {}, graph(op("exp", X.value)))
    assert pieces(before.graph) is before.graph
