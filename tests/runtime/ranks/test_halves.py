"""Gradients that a 16-bit model has rounded are given in 16 bits; sums and bits are those of their casts to f32."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks.nets import ACCUMULATED, TRANSFORMER, batch, built, rows_of
from ranks.together import places, together

from dslc.base.errors import ArtifactError
from dslc.compiler.ops import registry
from dslc.runtime.artifact.file import read_artifact
from dslc.runtime.artifact.plan import Buffer, Plan, Port
from dslc.runtime.ranks.group import Group
from dslc.runtime.session.calls.shard_sum import Parts
from dslc.runtime.session.calls.terms import Run, Span, Terms
from dslc.runtime.session.load import load


def plans(given: list[tuple[str, str, int]], count: int = 40) -> tuple[Plan, Plan]:
    """A shard that gives (name, dtype, offset), each of ``count`` elements, and an update that reads them by name."""

    def plan(buffers: list[Buffer], names: list[str], kind: str) -> Plan:
        ports = tuple(Port(name, kind, number) for number, name in enumerate(names))
        inputs, outputs = ((), ports) if kind == "shard" else (ports, ())
        return Plan(tuple(buffers), inputs, outputs, (), (), (), (), ())

    names = [name for name, *_ in given]
    shard = plan([Buffer("io", at, dtype, (count,)) for _, dtype, at in given], names, "shard")
    update = plan([Buffer("io", 256 + 192 * n, "f32", (count,)) for n in range(len(given))], sorted(names), "data")
    return shard, update


MIXED = [("a", "bf16", 512), ("c", "bf16", 640), ("b", "f32", 768), ("d", "f32", 960)]


def test_where_terms_and_sums_are() -> None:
    terms = Terms.of(*plans(MIXED))
    assert [(t.name, t.given, t.at) for t in terms.rows] == [
        ("a", 0, 0),
        ("b", 256, 192),
        ("c", 128, 384),
        ("d", 448, 576),
    ]
    assert (terms.first, terms.read, terms.given_bytes, terms.bytes, terms.half) == (512, 256, 640, 768, "bf16")
    assert not terms.as_summed and Terms.of(*plans([("a", "f32", 64), ("b", "f32", 256)])).as_summed
    assert terms.spans(0, 768) == [
        Span("bf16", 0, 208, (Run(0, 0, 40), Run(128, 384, 40))),
        Span("f32", 256, 352, (Run(0, 192, 40), Run(192, 576, 40))),
    ]
    assert terms.spans(64, 384) == [  # from the middle of `a` to the middle of `c`
        Span("bf16", 32, 128, (Run(0, 0, 24), Run(96, 320, 16))),
        Span("f32", 256, 160, (Run(0, 128, 40),)),
    ]


def test_parts_have_all_elements_once() -> None:
    terms = Terms.of(*plans(MIXED))
    found = {name: np.zeros(40, int) for name in "abcd"}
    for start, stop in pairwise((0, 64, 256, 512, 768)):
        for span in terms.spans(start, stop - start):
            for run in span.runs:
                [term] = [t for t in terms.rows if t.at <= start + run.at < t.at + 4 * t.elements]
                first = (start + run.at - term.at) // 4
                item = 2 if span.dtype == "bf16" else 4
                assert span.given + run.given == term.given + item * first
                found[term.name][first : first + run.elements] += 1
    assert all((each == 1).all() for each in found.values())


def test_what_does_not_fit_is_refused() -> None:
    for given in ([("a", "bf16", 0), ("b", "f16", 128)], [("a", "f64", 0)]):
        with pytest.raises(ArtifactError) as caught:
            Terms.of(*plans(given))
        assert caught.value.code == "R301"


def test_sums_are_those_of_casts() -> None:
    parts = Parts(Terms.of(*plans(MIXED)))
    rng, vector, expected = np.random.default_rng(0), np.zeros(parts.count, np.float32), {}
    for add in (False, True):
        numbers = {name: rng.normal(size=40).astype(np.float32) for name in "abcd"}
        bits = {name: (numbers[name].view(np.uint32) >> 16).astype(np.uint16) for name in "ac"}
        numbers |= {name: (bits[name].astype(np.uint32) << 16).view(np.float32) for name in "ac"}
        outputs = [(name, "shard", bits.get(name, array)) for name, array in numbers.items()]
        parts.take(vector, [*outputs, ("loss", "loss", np.float32(1))], add=add)
        expected = {name: expected[name] + array if add else array for name, array in numbers.items()}
    assert all(view.tobytes() == expected[name].tobytes() for name, view in parts.arrays(vector).items())


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "f16"])
@pytest.mark.parametrize("source", [TRANSFORMER, ACCUMULATED], ids=["transformer", "micro-batches"])
def test_any_number_of_ranks(tmp_path: Path, source: str, precision: str) -> None:
    path = built(tmp_path, source, precision=precision)
    artifact = read_artifact(path)
    plan = artifact.plan(artifact.programs("train_step")[0])
    dtypes = {plan.buffers[port.buffer].dtype for port in plan.outputs if port.kind == "shard"}
    assert dtypes == ({"f32"} if source is ACCUMULATED else {precision, "f32"})

    def work(group: Group | None) -> Any:
        rank, size = (0, 1) if group is None else (group.rank, group.size)
        session = load(path, device="cpu", weights="init", seed=3, meanings=registry.meanings, part=(rank, size))
        if group is not None:
            session.join(group)
        rows = rows_of(source) // size
        own = slice(rank * rows, (rank + 1) * rows)
        losses = [session.train_step(**{n: a[own] for n, a in batch(source, s).items()}).loss for s in range(4)]
        return losses, {name: array.tobytes() for name, array in session.state_tensors().items()}

    expected = work(None)
    for size in (2, 4, 8):
        for each in together(places(size), work):
            assert each.result() == expected
