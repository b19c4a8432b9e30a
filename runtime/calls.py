"""The three calls of a session: what they take, how they are cut into built sizes, how results are put together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dslc.base.errors import ArtifactError, InputError
from dslc.runtime.backend import LateOutputs, OnDevice
from dslc.runtime.batches import Cut, cut
from dslc.runtime.dtypes import numpy_dtype
from dslc.runtime.header import LEAST_SCALE
from dslc.runtime.inputs import Accepted, as_array, check_inputs, check_names, check_ranges
from dslc.runtime.interface import Dim, Interface, Tensor, size_value
from dslc.runtime.results import EvalResult, LateStepResult, StepResult

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.backend import Backend, Bound, DeviceBound, Outputs
    from dslc.runtime.context import Context, Loaded
    from dslc.runtime.state import State

Arrays = dict[str, "NDArray[Any] | OnDevice"]


class _Call:
    """Shared by the calls: names and arrays are checked, then programs of the right sizes are found."""

    entry: str  # of the artifact
    call: str  # as users write it

    def __init__(self, interface: Interface, programs: Sequence[Loaded]) -> None:
        if not programs:
            raise ArtifactError(
                "R303",
                f"the artifact holds no entry `{self.entry}`",
                place=self.entry,
                help="add a train section to the model and build it again",
            )
        self.interface = interface
        self.programs = programs
        self._like: Accepted | None = None  # what the last call was given, to check the same again quickly
        read = {port.name for p in programs for port in p.plan.inputs}
        self.tensors: tuple[Tensor, ...] = interface.inputs
        self.optional: frozenset[str] = frozenset()
        self.defaults: Mapping[str, float] = {}
        if self.entry != "predict" and interface.train is not None:
            self.tensors = interface.train_inputs
            self.optional = frozenset(t.name for t in self.tensors if t.name not in read)
            self.defaults = interface.train.scalars

    def by_name(self, unnamed: Sequence[object]) -> None:
        """InputError R105 for inputs without a name: their order in a model's text is not to matter."""
        if unnamed:
            names = ", ".join(f"{t.name}=..." for t in self.tensors)
            raise InputError("R105", "inputs are given by name", place=self.call, help=f"write {self.call}({names})")

    def checked(self, given: Mapping[str, object]) -> tuple[Arrays, dict[str, float], dict[str, int]]:
        """Arrays, float arguments (with defaults filled in) and the value of each dim."""
        like = self._like
        if like is not None and like.fits(given):
            arrays: Arrays = {name: given[name] for name, *_ in like.arrays}  # type: ignore[misc]
            check_ranges(self.call, arrays, like.ranged)
            dims = like.dims
        else:
            required = [t.name for t in self.tensors if t.name not in self.optional]
            check_names(self.call, list(given), required, [*self.optional, *self.defaults])
            present = [t for t in self.tensors if t.name in given]
            arrays, dims = check_inputs(self.call, given, present, self.bounds)
            self._like = Accepted.of(given, present, dims)
        arguments = {n: number(self.call, n, given[n]) if n in given else v for n, v in self.defaults.items()}
        return arrays, arguments, dims

    @cached_property
    def bounds(self) -> tuple[Dim, ...]:
        """The dims with the bounds that hold for this call."""
        return self.interface.dims

    def matching(self, dims: Mapping[str, int], *, whole: bool) -> list[Loaded]:
        """The programs built for these dims; the batch dim is left open unless ``whole``."""
        batch = self.interface.batch
        fixed = {n: v for n, v in dims.items() if whole or n != batch}
        found = [p for p in self.programs if all(self.sizes(p).get(n, v) == v for n, v in fixed.items())]
        if not found:
            raise self.not_built(fixed)
        return found

    def sizes(self, program: Loaded) -> Mapping[str, int]:
        """The dims of a call that this program serves."""
        return program.sizes

    def shown(self, program: Loaded) -> str:
        """The same for people."""
        return ", ".join(f"{n} = {v}" for n, v in sorted(self.sizes(program).items()))

    def not_built(self, dims: Mapping[str, int]) -> InputError:
        """R105 for sizes that no program of this entry was built for."""
        asked = ", ".join(f"{n} = {v}" for n, v in sorted(dims.items()))
        built = "; ".join(sorted(map(self.shown, self.programs)))
        return InputError(
            "R105",
            f"`{self.call}` was not built for {asked}",
            place=self.call,
            help=f"give {built}" + "; other sizes are built with --size",
        )

    def cut(
        self, dims: Mapping[str, int], tensors: tuple[Tensor, ...], *, pad: bool
    ) -> list[tuple[Loaded, Cut | None]]:
        """The runs that make up the call, in order of rows. A single one, uncut, where rows cannot be told apart."""
        batch = self.interface.batch
        if batch is None or batch not in dims or not self.interface.cuttable(tensors):
            return [(self.matching(dims, whole=True)[0], None)]
        by_size = {p.sizes[batch]: p for p in self.matching(dims, whole=False)}
        pieces = cut(dims[batch], list(by_size), pad=pad)
        if pieces is None:
            raise self.not_built({batch: dims[batch]})
        return [(by_size[piece.size], piece) for piece in pieces]

    @cached_property
    def by_row(self) -> frozenset[str]:
        """The inputs whose axis 0 is the batch dim."""
        return frozenset(t.name for t in self.tensors if self.interface.rows_of(t))


class Predict(_Call):
    """``predict``: results row by row where they have rows."""

    entry = call = "predict"

    def __init__(self, interface: Interface, programs: Sequence[Loaded], row_independent: bool) -> None:
        super().__init__(interface, programs)
        self.row_independent = row_independent

    @cached_property
    def bounds(self) -> tuple[Dim, ...]:
        """The bounds of the batch dim are those of one run; rows that do not depend on each other may be any number."""
        if not self.row_independent:
            return self.interface.dims
        return tuple(_unbounded(d) if d.batch else d for d in self.interface.dims)

    def check(self, given: Mapping[str, object]) -> tuple[Arrays, dict[str, int]]:
        arrays, _, dims = self.checked(given)
        return arrays, dims

    def pieces(self, dims: Mapping[str, int]) -> list[tuple[Loaded, Cut | None]]:
        tensors = self.interface.inputs + self.interface.results
        if not self.row_independent and not all(map(self.interface.rows_of, self.interface.results)):
            # A result without rows may be a sum over all of them: pieces cannot be put together.
            return [(self.matching(dims, whole=True)[0], None)]
        return self.cut(dims, tensors, pad=self.row_independent)

    def run(
        self,
        context: Context,
        arrays: Arrays,
        dims: Mapping[str, int],
        pieces: list[tuple[Loaded, Cut | None]],
        scalars: Mapping[str, int | float],
    ) -> Any:
        """An array, or the named tuple of the interface. Owned by the caller."""
        results: dict[str, NDArray[Any]] = {}
        for program, piece in pieces:
            start = 0 if piece is None else piece.start
            bound = context.feed(program, arrays, {**scalars, "row": scalars["row"] + start}, piece, self.by_row)
            outputs = {name: view for name, _, view in bound.run()}
            for result in self.interface.results:
                view = outputs[result.name]
                if piece is None or not self.interface.rows_of(result):
                    results.setdefault(result.name, view.copy())
                    continue
                if result.name not in results:
                    rows = dims[self.interface.batch or ""]
                    results[result.name] = np.empty((rows, *view.shape[1:]), view.dtype)
                results[result.name][start : start + piece.rows] = view[: piece.rows]
        if not pieces:
            results = {r.name: np.zeros(_shape(r, dims), numpy_dtype(r.dtype)) for r in self.interface.results}
        return self._given(results)

    def run_on_device(
        self,
        context: Context,
        backend: Backend,
        arrays: Arrays,
        dims: Mapping[str, int],
        pieces: list[tuple[Loaded, Cut | None]],
        scalars: Mapping[str, int | float],
    ) -> Any:
        """The same with results in the device's memory."""
        sizes = {**(pieces[0][0].sizes if pieces else {}), **dims}
        results = {r.name: backend.new_array(r.dtype, _shape(r, sizes)) for r in self.interface.results}
        for program, piece in pieces:
            start = 0 if piece is None else piece.start
            bound = context.feed(program, arrays, {**scalars, "row": scalars["row"] + start}, piece, self.by_row)
            targets = {
                r.name: results[r.name]
                if piece is None or not self.interface.rows_of(r)
                else results[r.name][start : start + piece.rows]
                for r in self.interface.results
            }
            cast("DeviceBound", bound).run_into(targets)
        return self._given(results)

    def _given(self, results: Mapping[str, Any]) -> Any:
        if len(self.interface.results) == 1:
            return results[self.interface.results[0].name]
        kind: Any = self.interface.result_type
        return kind(*(results[r.name] for r in self.interface.results))


def _shape(result: Tensor, dims: Mapping[str, int]) -> list[int]:
    return [size_value(size, dims) for size in result.shape]


class TrainStep(_Call):
    """``train_step``: one batch of exactly the built size, or as many micro-batches of it as the train section says."""

    entry = call = "train_step"

    def __init__(self, interface: Interface, programs: Sequence[Loaded], accumulating: Sequence[Loaded]) -> None:
        super().__init__(interface, programs)
        assert interface.train is not None, "an artifact with train_step has a train section"
        self.train = interface.train
        self.accumulating = accumulating
        self._found: tuple[Mapping[str, int], Loaded] | None = None  # the last call's dims and the program for them

    @cached_property
    def bounds(self) -> tuple[Dim, ...]:
        """The bounds of the batch dim are those of a micro-batch; a step has the rows that were built."""
        several = self.train.accumulate > 1
        return tuple(_unbounded(d) if d.batch and several else d for d in self.interface.dims)

    def sizes(self, program: Loaded) -> Mapping[str, int]:
        batch = self.interface.batch
        return {n: v * self.train.accumulate if n == batch else v for n, v in program.sizes.items()}

    def shown(self, program: Loaded) -> str:
        parts, batch = self.train.accumulate, program.sizes.get(self.interface.batch or "")
        return super().shown(program) + (f" ({parts} micro-batches of {batch})" if parts > 1 else "")

    def check(self, given: Mapping[str, object]) -> tuple[Arrays, dict[str, float], Loaded]:
        arrays, arguments, dims = self.checked(given)
        if self._found is None or self._found[0] is not dims:
            self._found = (dims, self.matching(dims, whole=True)[0])
        return arrays, arguments, self._found[1]

    def rate(self, lr: float | None) -> float:
        return self.train.lr if lr is None else number(self.call, "lr", lr)

    def parted(self, given: Mapping[str, object]) -> tuple[Any, Any, dict[str, object]]:
        """``lr``, ``row`` and the inputs of what a step is given by name. InputError R105 where it is no mapping."""
        if not isinstance(given, Mapping):
            raise InputError(
                "R105", f"a batch is {type(given).__name__}, a mapping was expected", place=f"{self.call}s(batches)",
                help='give each batch by name, as {"image": ..., "label": ...}',
            )  # fmt: skip
        return given.get("lr"), given.get("row"), {n: v for n, v in given.items() if n not in ("lr", "row")}

    def rows(self, program: Loaded) -> int:
        """Rows of a step; 0 for a model without a batch dim."""
        return self.sizes(program).get(self.interface.batch or "", 0)

    def feed(
        self, context: Context, program: Loaded, arrays: Arrays, scalars: Mapping[str, int | float]
    ) -> Iterator[Bound]:
        """The plans of the step with their inputs, each to be run before the next: one a micro-batch."""
        count = self.train.accumulate
        if count == 1:
            yield context.feed(program, arrays, scalars)
            return
        before = next(p for p in self.accumulating if p.sizes == program.sizes)
        size = program.sizes[self.interface.batch or ""]
        for start in range(0, count * size, size):
            last = start == (count - 1) * size
            rows = {**scalars, "row": scalars["row"] + start}
            yield context.feed(program if last else before, arrays, rows, Cut(start, size, size), self.by_row)

    def run(
        self, context: Context, program: Loaded, arrays: Arrays, scalars: Mapping[str, int | float], state: State
    ) -> StepResult:
        """Run the step; loss and metrics are means over its micro-batches. ``state`` is torn if this raises halfway."""
        runs: list[Outputs] = []
        for bound in self.feed(context, program, arrays, scalars):
            outputs = bound.run(before_writing=state.tear)
            late = isinstance(outputs, LateOutputs)
            runs.append(outputs if late else [(name, kind, view.copy()) for name, kind, view in outputs])
        state.torn = False
        step = int(scalars["step"])
        return self.late(runs, step, state) if late else _step_result(runs, step, state.forward_order)

    def late(self, runs: Sequence[Outputs], step: int, state: State) -> StepResult:
        """The result of a step whose runs may not be over."""
        return LateStepResult(step, partial(_step_result, runs, step, state.forward_order))

    def unstacked(self, given: Mapping[str, object]) -> Iterator[dict[str, object]]:
        """What each step is given, of arrays that hold those of all steps one after the other, and of numbers, which
        hold for all of them or are one a step. InputError R105 for arrays of different lengths."""
        check_names(self.call, list(given), [t.name for t in self.tensors if t.name not in self.optional],
                    [*self.optional, *self.defaults, "lr", "row"])  # fmt: skip
        arrays = {t.name: as_array(self.call, t, given[t.name]) for t in self.tensors if t.name in given}
        for tensor in self.tensors:  # values are looked at on the host
            array = arrays.get(tensor.name)
            if tensor.range is not None and isinstance(array, OnDevice):
                arrays[tensor.name] = array.numpy()
        numbers = {n: v for n, v in given.items() if n not in arrays}
        several = {n: list(v) for n, v in numbers.items() if isinstance(v, Sequence | np.ndarray) and np.ndim(v) == 1}
        lengths = {n: a.shape[0] if a.shape else 0 for n, a in arrays.items()} | {n: len(v) for n, v in several.items()}
        steps = next(iter(lengths.values()), 0)
        for name, length in lengths.items():
            if length != steps:
                raise InputError(
                    "R105", f"`{name}` is for {length} steps, and `{next(iter(lengths))}` for {steps}",
                    place=f"{self.call}s({name}=...)", help="give as many of each",
                )  # fmt: skip
        for i in range(steps):
            of_step = {n: a.at(i) if isinstance(a, OnDevice) else a[i] for n, a in arrays.items()}
            yield {**numbers, **{n: v[i] for n, v in several.items()}, **of_step}


def _step_result(runs: Sequence[Outputs], step: int, forward_order: Sequence[str]) -> StepResult:
    losses: list[float] = []
    metrics: dict[str, list[float]] = {}
    first, scale, skips = None, None, 0
    for outputs in runs:
        if isinstance(outputs, LateOutputs):
            outputs.settle()
        for name, kind, view in outputs:
            if kind == "loss":
                losses.append(float(view))
            elif kind == "metric":
                metrics.setdefault(name.removeprefix("metric."), []).append(float(view))
            elif kind == "flags" and view.any():
                first = forward_order[int(view.argmax())]
            elif kind == "scale":
                scale = float(view)
            elif kind == "skipped":
                skips = int(view)
    loss, means = _mean(losses), {n: _mean(v) for n, v in metrics.items()}
    if scale is None:
        return StepResult(loss, means, step, first)
    skipped = scale > LEAST_SCALE and (first is not None or not math.isfinite(losses[-1]))
    return StepResult(loss, means, step, None if skipped else first, scale, skipped, skips)


def _unbounded(dim: Dim) -> Dim:
    return replace(dim, low=0, high=(1 << 63) - 1)


def _mean(values: Sequence[float]) -> float:
    """nan for none."""
    return sum(values) / len(values) if values else math.nan


class Evaluate(_Call):
    """``evaluate``: partial sums, maxima, minima and counts of each piece are combined, then finished once."""

    entry, call = "eval_step", "evaluate"

    def __init__(self, interface: Interface, programs: Sequence[Loaded], finish: Sequence[Loaded]) -> None:
        super().__init__(interface, programs)
        if len(finish) != 1:
            raise ArtifactError(
                "R301", "an artifact that evaluates holds one `eval_finish`", place="programs", help="build it again"
            )
        self.finish = finish[0]

    @cached_property
    def bounds(self) -> tuple[Dim, ...]:
        """The bounds of the batch dim are those of one run; all rows together may be any number."""
        return tuple(_unbounded(d) if d.batch else d for d in self.interface.dims)

    def check(self, given: Mapping[str, object]) -> tuple[Arrays, dict[str, float], dict[str, int]]:
        return self.checked(given)

    def pieces(self, dims: Mapping[str, int]) -> list[tuple[Loaded, Cut | None]]:
        batch = self.interface.batch
        if batch is not None and dims.get(batch) == 0:
            raise InputError("R105", "there are no rows to evaluate", place=self.call, help="give at least one")
        return self.cut(dims, self.tensors, pad=False)

    def run(
        self,
        context: Context,
        arrays: Arrays,
        pieces: list[tuple[Loaded, Cut | None]],
        scalars: Mapping[str, int | float],
    ) -> EvalResult:
        return self._combine(context, ((program, piece, piece, arrays) for program, piece in pieces), scalars)

    def pieces_of(self, rows: int) -> list[tuple[Loaded, Cut | None]]:
        """The pieces of so many rows, for the built sizes of the other dims."""
        batch = self.interface.batch
        others = {name: size for name, size in self.programs[0].sizes.items() if name != batch}
        return self.pieces(others if batch is None else {**others, batch: rows})

    def run_each(
        self,
        context: Context,
        pieces: Sequence[tuple[Loaded, Cut | None]],
        parts: Iterable[Mapping[str, object]],
        arguments: Mapping[str, object],
        scalars: Mapping[str, int | float],
    ) -> EvalResult:
        """The same with the inputs of each piece by themselves."""
        values = {n: number(self.call, n, arguments.get(n, v)) for n, v in self.defaults.items()}

        def each() -> Iterator[tuple[Loaded, Cut | None, Cut | None, Arrays]]:
            for (program, piece), part in zip(pieces, parts, strict=True):
                yield program, piece, None, self.checked({**part, **arguments})[0]

        return self._combine(context, each(), {**scalars, **values})

    def _combine(
        self,
        context: Context,
        each: Iterable[tuple[Loaded, Cut | None, Cut | None, Arrays]],
        scalars: Mapping[str, int | float],
    ) -> EvalResult:
        """Of each piece: its place in the call, its place in the arrays (None: they are the piece), the arrays."""
        total: dict[str, NDArray[Any]] = {}
        rows = 0
        for program, piece, inside, arrays in each:
            start = 0 if piece is None else piece.start
            bound = context.feed(program, arrays, {**scalars, "row": scalars["row"] + start}, inside, self.by_row)
            rows += program.sizes.get(self.interface.batch or "", 0) if piece is None else piece.rows
            for name, kind, view in bound.run():
                total[name] = _combined(kind, total[name], view) if name in total else view.copy()
        bound = context.feed(self.finish, total, scalars)
        loss: float | None = None
        metrics: dict[str, float] = {}
        for name, kind, view in bound.run():
            if kind == "loss":
                loss = float(view)
            elif kind == "metric":
                metrics[name.removeprefix("metric.")] = float(view)
        return EvalResult(loss, metrics, rows)


def _combined(kind: str, total: NDArray[Any], value: NDArray[Any]) -> NDArray[Any]:
    """Two batches' partial results as one. A NaN in either stays one."""
    with np.errstate(all="ignore"):
        match kind:
            case "partial.sum" | "count":
                return np.asarray(total + value)
            case "partial.max":
                return np.asarray(np.maximum(total, value))
            case "partial.min":
                return np.asarray(np.minimum(total, value))
    raise ArtifactError("R301", f"eval_step gives a {kind!r}, which cannot be combined", place="eval_step")


def number(call: str, name: str, value: object) -> float:
    """A finite float argument; InputError R105 for anything else."""
    if isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool):
        try:
            result = float(value)
        except OverflowError:
            result = math.inf
        if math.isfinite(result):
            return result
    raise InputError(
        "R105",
        f"`{name}` is {repr(value)[:60]}, a finite number was expected",
        place=f"{call}({name}=...)",
        help="pass a float",
    )
