"""The laws that every program is held against. Each raises AssertionError with what differs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from fuzzing.execution import compiled, executed, feeds_for
from fuzzing.interpreter import Arrays, Frozen, Interpreter, kind_is_state, spread, typed
from fuzzing.programs import MARK
from fuzzing.programs import Program as Source

from dslc.compiler import pipeline
from dslc.compiler.artifact.state_layout import layout_state
from dslc.compiler.check.entries import train_spec
from dslc.compiler.check.model import Checked, check_file
from dslc.compiler.ir.build import Pass, TrainSpec
from dslc.compiler.ir.graph import Graph, Kind, Value, order
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.scan import body_of, scan
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.lower.dtypes.precision import precision
from dslc.compiler.passes.lower.gradient.autodiff import autodiff
from dslc.compiler.passes.lower.gradient.differentiate import differentiate
from dslc.compiler.passes.order import PIPELINE
from dslc.compiler.passes.plan.memory import memory
from dslc.compiler.passes.plan.schedule import schedule
from dslc.compiler.passes.plan.select_kernels import select
from dslc.compiler.passes.runner import pass_name
from dslc.runtime.artifact.dtypes import numpy_dtype

#: what a program must go through to run at all
BARE = (autodiff, precision, select, schedule, memory)
#: by the ops of a graph, the passes that may change the order of its sums
REORDERING = {
    "transpose": ("transposes", "image_transposes"),
    "scatter_rows_add": ("replacements",),
    "scatter_add": ("replacements",),  # simplify makes some of them scatter_rows_add
}
EPS = {DType.F32: 2.0**-23, DType.F64: 2.0**-52}  # twice the error of one rounding


@dataclass
class Case:
    """A checked program with sizes, and the state after ``init`` (moved a little, so that no bias is 0)."""

    checked: Checked
    sizes: dict[str, int]
    seed: int
    high: dict[str, int]

    def state(self, dtype: DType) -> dict[str, np.ndarray]:
        made = compiled(self.checked, "init", self.sizes, dtype)
        layout = layout_state(self.checked, dtype)
        zeros = {t.name: np.zeros(t.type.ints, numpy_dtype(dtype.value)) for t in layout.tensors}
        found = executed(made, {**zeros, "seed": np.asarray(self.seed)})
        rng = np.random.default_rng(self.seed)
        state = {}
        for tensor in layout.tensors:
            value = found[f"update {tensor.name}"]
            if tensor.kind is Kind.PARAM:
                value = value + rng.uniform(-0.1, 0.1, value.shape).astype(np.float32).astype(value.dtype)
            state[tensor.name] = value
        return state


def case_of(program: Source, path: Path) -> Case:
    """Checks the program's text; raises CompileError where it is not valid."""
    path.write_text(program.text())
    return case_of_file(path)


def case_of_file(path: Path) -> Case:
    """Of a program in a file; its last line says the seed of its data and the limits of its integers."""
    checked = check_file(path)
    last = path.read_text().splitlines()[-1]
    facts = json.loads(last.removeprefix(MARK))
    return Case(checked, {d.name: d.default for d in checked.dims}, facts["seed"], facts["high"])


@contextmanager
def _during(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"during: {what}")
        raise


def hold(case: Case, dtype: DType) -> None:
    """All laws, for every entry of the program, computed in ``dtype``."""
    state = case.state(dtype)
    with _during("predict"):
        _entry(case, "predict", dtype, state)
        if "B" in case.sizes and case.seed % 3 == 0:
            _entry(replace(case, sizes=case.sizes | {"B": 1}), "predict", dtype, state)
    if case.checked.train is None:
        return
    with _during("train_step"):
        after = _entry(case, "train_step", dtype, state)
    if case.seed % 4 < 2:
        with _during("second train_step"):  # from optimizer tensors that are not 0 any more
            _entry(case, "train_step", dtype, state | after)
    if dtype is DType.F64:
        with _during("gradient"):
            gradient(case, state)


def _entry(case: Case, entry: str, dtype: DType, state: Arrays) -> dict[str, np.ndarray]:
    """The entry agrees with the interpreter, without passes, and with dead bytes poisoned. Gives the new state."""
    checked, sizes = case.checked, case.sizes
    cut = pipeline.cut(checked, entry, sizes).graph
    feeds = feeds_for(cut, case.seed, dtype, case.high) | dict(state)
    full = compiled(checked, entry, sizes, dtype)
    got = executed(full, feeds)
    with _during("poison"):
        same_bits(executed(full, feeds, poison=True), got)
    bare = compiled(checked, entry, sizes, dtype, BARE)
    exact = not _reads_a_transpose(bare.program.graph)
    in_order = _in_order(bare.program.graph)
    reordered = len(in_order) < len(PIPELINE)
    if exact:
        ordered = executed(compiled(checked, entry, sizes, dtype, in_order), feeds) if reordered else got
        with _during("passes off"):
            same_bits(executed(bare, feeds), ordered)
        with _during("interpreter"):
            expected = Interpreter(typed(cut, dtype)).run(feeds)
            same_bits({name: ordered[name] for name in expected}, expected)
    if dtype is DType.F32 or reordered:
        with _during("f64"):
            whole = autodiff(pipeline.cut(checked, entry, sizes), full.build).graph
            free = moved_by_noise(case, feeds, EPS[dtype]) if entry == "train_step" else {}
            near(got, typed(whole, DType.F64), feeds, case.seed, EPS[dtype], free)
    return {name.removeprefix("update "): array for name, array in got.items() if name.startswith("update ")}


def _reads_a_transpose(graph: Graph) -> bool:
    """Whether a matrix product reads a transpose. Simplify makes it a flag, and then BLAS may add in another order:
    bits are compared where there is none; elsewhere the results must be near those of f64, as everywhere."""
    products = [n for n in graph.nodes if n.op.name == "matmul"]
    if any(getattr(v.producer, "op", None) is OPS["transpose"] for n in products for v in n.inputs):
        return True
    return any(_reads_a_transpose(body_of(n.attrs)) for n in graph.nodes if n.op is scan)


def _in_order(graph: Graph) -> Sequence[Pass]:
    """All passes but those that may change the order of sums in this graph."""
    gone = {name for op, names in REORDERING.items() if _has(graph, op) for name in names}
    return [each for each in PIPELINE if pass_name(each) not in gone]


def _has(graph: Graph, op: str) -> bool:
    """Whether the graph or the body of a loop has a node of this op."""
    bodies = [body_of(n.attrs) for n in graph.nodes if n.op is scan]
    return any(n.op is OPS[op] for n in graph.nodes) or any(_has(body, op) for body in bodies)


def same_bits(a: Arrays, b: Arrays) -> None:
    """Equal bytes, but for which nan it is."""
    assert a.keys() == b.keys(), f"{sorted(a)} and {sorted(b)}"
    for name, x in a.items():
        y = b[name]
        assert (x.dtype, x.shape) == (y.dtype, y.shape), f"{name}: {x.dtype}{x.shape} and {y.dtype}{y.shape}"
        if x.tobytes() == y.tobytes():
            continue
        assert x.dtype.kind == "f" and (np.isnan(x) == np.isnan(y)).all(), f"{name}: {x} and {y}"
        real = ~np.isnan(x)
        assert x[real].tobytes() == y[real].tobytes(), f"{name}: {x} and {y}"


def moved_by_noise(case: Case, feeds: Arrays, eps: float) -> dict[str, np.ndarray]:
    """By the names of updates, the elements that an optimizer may move by a step either way: their gradient is 0 but
    for rounding, and all but ``sgd`` divide it by its own size, or take its sign. Of an optimizer that looks at whole
    tensors, these are all elements of a tensor with such a gradient."""
    spec = train_spec(case.checked)
    assert spec is not None
    named = gradients(case, spec)
    bounds = spread(Graph(named.graph.inputs, order(named.of.values()), named.of), feeds, 3, eps, case.seed)
    found: dict[str, np.ndarray] = {}
    for update in spec.updates:
        for name in update.trained:
            optimizer, args = update.rule(name)
            low, high = bounds[spec.iterate_of(name)]
            room = _room(low, high, eps)
            free = ~((low > room) | (high < -room))  # also what is nan
            if optimizer.name == "sgd" or not free.any():
                continue
            whole = optimizer.of_whole_tensors
            found[f"update {spec.iterate_of(name)}"] = np.ones_like(free) if whole else free
            for slot in optimizer.slots(dict(args)):
                found[f"update {name}.{slot}"] = np.asarray(True) if whole else free
    return found


def near(
    got: Arrays, graph: Graph, feeds: Arrays, seed: int, eps: float, free: Mapping[str, np.ndarray] | None = None
) -> None:
    """Each number lies where f64 puts it when every result is disturbed by up to ``eps`` of itself. ``free``: elements
    of results that need only be finite where f64's are."""
    for runs in (3, 40):
        bounds = spread(graph, feeds, runs, eps, seed)
        wrong = _outside(got, bounds, eps, free or {})
        if not wrong:
            return
    raise AssertionError(f"not what f64 gives: {', '.join(wrong)}")


def _room(low: np.ndarray, high: np.ndarray, eps: float) -> np.ndarray:
    """How far outside of its bounds a number may lie."""
    greatest = np.maximum(np.abs(low), np.abs(high))
    return np.asarray(8 * (high - low) + 64 * eps * (1 + greatest))


def _outside(
    got: Arrays, bounds: dict[str, tuple[np.ndarray, np.ndarray]], eps: float, free: Mapping[str, np.ndarray]
) -> list[str]:
    wrong = []
    for name, (low, high) in bounds.items():
        x, low, high = (array.astype(np.float64) for array in (got[name], low, high))
        with np.errstate(all="ignore"):
            greatest = np.maximum(np.abs(low), np.abs(high))
            room = _room(low, high, eps)
            # an overflow of f32, or a nan, may come earlier than in f64
            fits = ((x >= low - room) & (x <= high + room)) | ~np.isfinite(low + high) | (greatest > 1e37)
            fits |= np.isfinite(x) & free.get(name, np.asarray(False))
        if not fits.all():
            wrong.append(f"{name}: {got[name][~fits][:3]} is not in {low[~fits][:3]} .. {high[~fits][:3]}")
    return wrong


class Gradients(NamedTuple):
    """The graph of a training step in f64, and the gradients ``of`` the tensors that it trains, by their names."""

    graph: Graph
    of: dict[str, Value]


def gradients(case: Case, spec: TrainSpec) -> Gradients:
    graph = typed(pipeline.cut(case.checked, "train_step", case.sizes).graph, DType.F64)
    iterates = {spec.iterate(p) for p in spec.params}
    params = [i for i in graph.inputs if i.name in iterates]
    found = differentiate(graph, graph.outputs["loss"], [p.value for p in params])
    return Gradients(graph, {p.name: found[p.value] for p in params if p.value in found})


def gradient(case: Case, state: Arrays) -> int:
    """The gradient of each parameter along a random direction is the central difference of the loss in f64.

    Central differences at two widths; where they disagree, or the two sides do, the loss has a kink there, and nothing
    is said. Gives the number of parameters that were compared.
    """
    spec = train_spec(case.checked)
    assert spec is not None
    graph, named = gradients(case, spec)
    feeds = feeds_for(graph, case.seed, DType.F64, case.high) | dict(state)
    loss = graph.outputs["loss"]
    values = Interpreter(Graph(graph.inputs, order(named.values()), named)).run(feeds)
    alone = Interpreter(Graph(graph.inputs, order([loss]), {"loss": loss}))
    frozen: Frozen = {}
    base = float(alone.run(feeds, frozen=frozen)["loss"])
    if not math.isfinite(base):
        return 0
    rng = np.random.default_rng(case.seed)
    compared = 0
    for name, got in values.items():
        direction = rng.standard_normal(got.shape)
        direction /= max(float(np.linalg.norm(direction)), 1e-30)

        def differences(h: float, name: str = name, direction: np.ndarray = direction) -> tuple[float, float]:
            up, down = (
                float(alone.run({**feeds, name: feeds[name] + s * h * direction}, frozen=frozen)["loss"])
                for s in (1, -1)
            )
            return (up - base) / h, (base - down) / h

        wide, sides = sum(differences(1e-5)) / 2, differences(3e-6)
        fine = sum(sides) / 2
        slope = float((got * direction).sum())
        size = max(abs(fine), abs(slope))
        noise = 1e-9 * max(1.0, abs(base)) + 1e-5 * float(np.linalg.norm(got))
        if not math.isfinite(wide + fine) or abs(wide - fine) > 1e-5 * size + noise:
            continue
        if abs(sides[0] - sides[1]) > 1e-2 * max(map(abs, sides)) + noise:
            continue  # the kink lies right here, and central differences do not see it
        compared += 1
        assert abs(slope - fine) <= 1e-4 * size + noise, f"the slope of {name} is {fine}, its gradient says {slope}"
    return compared


__all__ = ["BARE", "Case", "case_of", "case_of_file", "gradient", "hold", "kind_is_state", "near", "same_bits"]
