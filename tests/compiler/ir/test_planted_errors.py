"""The verifier finds every error of every kind that is planted in finished programs, and refuses nothing that is sound.

What is an error is decided byte by byte and pair by pair of nodes by a judge that shares nothing with the verifier.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from graphs.byte_judge import is_sound
from graphs.planted_errors import ERRORS
from graphs.random_graphs import build_for, random_graph
from places import ROOT

from dslc.compiler.artifact.state_layout import layout_state
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.verify.error import VerifyError
from dslc.compiler.ir.verify.program import verify_program
from dslc.compiler.options import Options, precision_of
from dslc.compiler.passes.plan.memory import memory
from dslc.compiler.passes.plan.schedule import schedule
from dslc.compiler.passes.plan.streams import streams
from dslc.compiler.pipeline import build_options, compile_entry

pytestmark = pytest.mark.slow

MODELS = {
    "examples/digits/lenet.nn": ({"B": 2}, {}),
    "examples/inception/inception.nn": ({"B": 2}, {"width": "2"}),
    "examples/charlm/charlm.nn": ({"B": 1, "T": 8}, {"layers": "1", "heads": "2", "d": "8"}),
    "examples/vae/vae.nn": ({"B": 2}, {"latent": "2"}),
    "examples/lstm/lstm.nn": ({"B": 1, "T": 4}, {"layers": "1", "hidden": "4", "d": "4"}),
}
PARTS = 10 if os.environ.get("DSLC_SOAK") == "1" else 1
Finished: TypeAlias = tuple[str, Program, Build]


def _of_models(rng: random.Random, count: int) -> Iterator[Finished]:
    """Programs of the examples, small, on 1, 2 and 4 streams; now and then as their CPU's."""
    kinds = [(m, e, s) for m in MODELS for e in ("train_step", "train_step", "eval_step", "predict") for s in (1, 2, 4)]
    for model, entry, count_of_streams in rng.sample(kinds, min(count, len(kinds))):
        sizes, args = MODELS[model]
        checked = check_file(ROOT / model, None, args)
        target = "sm_90" if count_of_streams > 1 or rng.random() < 0.7 else "cpu"
        options = Options(target=target, streams=count_of_streams, mirror=rng.choice(("never", 1)))
        program, _ = compile_entry(checked, entry, sizes, options)
        layout = layout_state(checked, precision_of(checked, options).params, sizes=sizes)
        yield f"{model} {entry} {count_of_streams}", program, build_options(checked, options, layout, target)


def _random(rng: random.Random, count: int) -> Iterator[Finished]:
    for _ in range(count):
        graph = random_graph(rng, rng.randint(4, 40))
        build = replace(build_for(graph), target="sm_90", streams=rng.choice((1, 2, 4)))
        ordered = schedule(Program("predict", {}, graph, target="sm_90"), build)
        working = [n for n in graph.nodes if not n.op.view]
        blocks = {n: tuple(rng.choices((64, 200, 1024), k=2)) for n in working if rng.random() < 0.3}
        yield "random", memory(streams(replace(ordered, scratch=blocks), build), build), build


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_planted_error_is_found(part: int, fuzz_seed: int) -> None:
    rng = random.Random(10 * fuzz_seed + part)
    found: Counter[str] = Counter()
    harmless: Counter[str] = Counter()
    programs = [*_random(rng, 40), *_of_models(rng, 4)]
    on_streams = 0
    for name, program, build in programs:
        assert is_sound(program, build), name
        verify_program(program, build)
        on_streams += bool(program.streams)
        for error in ERRORS:
            for _ in range(2):
                wrong = error(rng, program)
                if wrong is None:
                    continue
                if is_sound(wrong, build):
                    verify_program(wrong, build)  # nor does it cry wolf
                    harmless[error.__name__] += 1
                    continue
                with pytest.raises(VerifyError):
                    verify_program(wrong, build)
                found[error.__name__] += 1
    print(
        f"{found.total()} errors in {len(programs)} programs, {on_streams} on several streams, all found: {dict(found)}"
    )
    print(f"{harmless.total()} changes were none: {dict(harmless)}")
    assert found.total() >= 500 and on_streams >= 4  # about 22 of 40
    assert all(found[error.__name__] >= 3 for error in ERRORS), "each kind was there"


@pytest.mark.parametrize("count", [1, 4])
def test_the_proof_takes_a_small_part_of_a_build(count: int) -> None:
    """Of the passes alone: compiling kernels takes longer still."""
    checked = check_file(ROOT / "examples/inception/inception.nn", None, {"width": "4"})
    options = Options(target="sm_90", streams=count, mirror="never")
    start = time.process_time()
    program, _ = compile_entry(checked, "train_step", {"B": 4}, options)
    whole = time.process_time() - start
    layout = layout_state(checked, precision_of(checked, options).params)
    build: Any = build_options(checked, options, layout, "sm_90")
    proof = float("inf")
    for _ in range(3):
        start = time.process_time()
        verify_program(program, build)
        proof = min(proof, time.process_time() - start)
    print(f"{proof:.3f} of {whole:.3f} s of the passes, without the code of kernels")
    assert proof < 0.1 * whole
