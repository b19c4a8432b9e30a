"""Random programs as whole artifacts with compiled kernels: near what the f64 interpreter gives."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from differential import EPS, Case, case_of, near
from execution import feeds_for
from interpreter import typed
from test_differential import program_of, saved

from dslc.compiler import pipeline
from dslc.compiler.ir.graph import Graph
from dslc.compiler.ir.types import DType
from dslc.compiler.layout import layout_state
from dslc.compiler.ops.registry import meanings
from dslc.compiler.passes.autodiff import autodiff
from dslc.runtime.session import Session, load

COUNT = 300 if os.environ.get("DSLC_SOAK") == "1" else 6
PARTS = 3


def held(case: Case, path: Path) -> None:
    """A prediction and two steps of training are near those of the interpreter, from the same state."""
    sizes = {"predict": {n: (s,) for n, s in case.sizes.items()}}
    path.write_bytes(pipeline.build(case.checked, pipeline.Options(provider="auto", sizes=sizes)).artifact)
    with load(path, weights="init", seed=case.seed, meanings=meanings()) as session:
        _predict(case, session)
        if case.checked.train is not None:
            for step in range(2):
                _train(case, session, step)


def _feeds(case: Case, graph: Graph, session: Session, step: int) -> dict[str, np.ndarray]:
    whole = feeds_for(case.checked.graph.bind(case.sizes), case.seed, DType.F32, case.high)  # an entry may not read all
    return (
        feeds_for(graph, case.seed, DType.F32, case.high)
        | whole
        | {"step": np.asarray(step), "row": np.asarray(0)}
        | dict(session.state_tensors())
    )


def _predict(case: Case, session: Session) -> None:
    graph = pipeline.cut(case.checked, "predict", case.sizes).graph
    feeds = _feeds(case, graph, session, 5)
    given = {i.name: feeds[i.name] for i in case.checked.model_inputs}
    got = session.predict(**given, step=5)
    results = got if isinstance(got, tuple) else (got,)
    named = dict(zip((f"result.{n}" for n in case.checked.results), results, strict=True))
    near(named, typed(graph, DType.F64), feeds, case.seed, EPS[DType.F32])


def _train(case: Case, session: Session, step: int) -> None:
    program = pipeline.cut(case.checked, "train_step", case.sizes)
    build = pipeline.build_options(
        case.checked, pipeline.Options(provider="reference"), layout_state(case.checked, DType.F32)
    )
    graph = autodiff(program, build).graph
    feeds = _feeds(case, graph, session, step)
    names = {i.name for i in session.interface.train_inputs}
    done = session.train_step(**{n: feeds[n] for n in names}, lr=float(feeds["lr"]), row=0)
    after = session.state_tensors()
    updated = {f"update {i.name}": np.asarray(after[i.name]) for i, _ in graph.updates}
    metrics = {f"metric.{n}": np.asarray(v, np.float32) for n, v in done.metrics.items()}
    found = {"loss": np.asarray(done.loss, np.float32), **metrics, **updated}
    outputs = {name: v for name, v in graph.outputs.items() if name in found}
    near(found, typed(Graph(graph.inputs, graph.nodes, outputs, graph.updates), DType.F64), feeds, case.seed,
         EPS[DType.F32])  # fmt: skip


@pytest.mark.parametrize("part", range(PARTS))
def test_artifacts_give_what_the_interpreter_gives(part: int, fuzz_seed: int, tmp_path: Path) -> None:
    for number in range(part, COUNT, PARTS):
        program = program_of(fuzz_seed * 100_000 + 50_000 + number)
        case = case_of(program, tmp_path / "m.nn")
        try:
            held(case, tmp_path / "m.dslc")
        except Exception as error:
            error.add_note(f"seed {program.seed}; the program: {saved(program)}")
            raise
