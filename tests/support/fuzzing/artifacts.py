"""Random programs as whole artifacts, trained and asked: near what the f64 interpreter gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from fuzzing.differential import EPS, Case, near
from fuzzing.execution import feeds_for
from fuzzing.interpreter import typed

from dslc.compiler import pipeline
from dslc.compiler.artifact.state_layout import layout_state
from dslc.compiler.ir.graph import Graph
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.registry import meanings
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.gradient.autodiff import autodiff
from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session

_HALF_EPS = {"bf16": 2.0**-8, "f16": 2.0**-11}


def held(case: Case, path: Path, target: str = "cpu", provider: str = "auto") -> None:
    """A prediction and two steps of training on the target are near those of the interpreter, from the same state."""
    sizes = {"predict": {n: (s,) for n, s in case.sizes.items()}}
    options = Options(target=target, provider=provider, sizes=sizes)
    path.write_bytes(pipeline.build(case.checked, options).artifact)
    device = "cpu" if target == "cpu" else "gpu"
    with load(path, device=device, weights="init", seed=case.seed, meanings=meanings()) as session:
        _predict(case, session)
        if case.checked.train is not None:
            for step in range(2):
                _train(case, session, step)


def held_in_16_bits(case: Case, path: Path, precision: str) -> None:
    """On the CPU all ops have kernels in this precision; a prediction is near the interpreter's, from the same state,
    and a step of training runs."""
    sizes = {"predict": {n: (s,) for n, s in case.sizes.items()}}
    options = Options(provider="own", precision=precision, sizes=sizes)
    path.write_bytes(pipeline.build(case.checked, options).artifact)
    with load(path, device="cpu", weights="init", seed=case.seed) as session:
        _predict(case, session, _HALF_EPS[precision])
        if case.checked.train is not None:
            graph = pipeline.cut(case.checked, "train_step", case.sizes).graph
            feeds = _feeds(case, graph, session, 0)
            names = {i.name for i in session.interface.train_inputs}
            float(session.train_step(**{n: feeds[n] for n in names}, lr=0.05, row=0).loss)


def _feeds(case: Case, graph: Graph, session: Session, step: int) -> dict[str, np.ndarray]:
    whole = feeds_for(case.checked.graph.bind(case.sizes), case.seed, DType.F32, case.high)  # an entry may not read all
    return (
        feeds_for(graph, case.seed, DType.F32, case.high)
        | whole
        | {"step": np.asarray(step), "row": np.asarray(0)}
        | dict(session.state_tensors())
    )


def _predict(case: Case, session: Session, eps: float = EPS[DType.F32]) -> None:
    graph = pipeline.cut(case.checked, "predict", case.sizes).graph
    feeds = _feeds(case, graph, session, 5)
    given = {i.name: feeds[i.name] for i in case.checked.model_inputs}
    got = session.predict(**given, step=5)
    results = got if isinstance(got, tuple) else (got,)
    named = dict(zip((f"result.{n}" for n in case.checked.results), results, strict=True))
    near(named, typed(graph, DType.F64), feeds, case.seed, eps)


def _train(case: Case, session: Session, step: int) -> None:
    program = pipeline.cut(case.checked, "train_step", case.sizes)
    build = pipeline.build_options(case.checked, Options(provider="reference"), layout_state(case.checked, DType.F32))
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
