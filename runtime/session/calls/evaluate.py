"""``evaluate``: combines the partial sums, maxima, minima and counts of each piece, then finishes them once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.base.errors import ArtifactError, InputError
from dslc.runtime.artifact.interface import Dim, Interface
from dslc.runtime.session.calls.call import Arrays, Call, number, unbounded
from dslc.runtime.session.calls.shared_pieces import Piece, of_all, own_pieces
from dslc.runtime.session.results import EvalResult

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.session.backend import Outputs
    from dslc.runtime.session.batches import Cut
    from dslc.runtime.session.calls.shard_sum import Exchange
    from dslc.runtime.session.context import Context, Loaded
    from dslc.runtime.session.inputs.check import Look


class Evaluate(Call):
    """``evaluate``: combines the partial sums, maxima, minima and counts of each piece, then finishes them once."""

    entry, call = "eval_step", "evaluate"

    def __init__(self, interface: Interface, programs: Sequence[Loaded], look: Look, finish: Sequence[Loaded]) -> None:
        super().__init__(interface, programs, look)
        if len(finish) != 1:
            raise ArtifactError(
                "R301", "an artifact that evaluates holds one `eval_finish`", place="programs", help="build it again"
            )
        self.finish = finish[0]

    @cached_property
    def bounds(self) -> tuple[Dim, ...]:
        """The dims; the batch dim has no bounds here, since they apply to one run and not to all rows together."""
        return tuple(unbounded(d) if d.batch else d for d in self.interface.dims)

    def check(self, given: Mapping[str, object]) -> tuple[Arrays, dict[str, float], dict[str, int]]:
        return self.checked(given)

    def pieces(self, dims: Mapping[str, int]) -> list[Piece]:
        batch = self.interface.batch
        if batch is not None and dims.get(batch) == 0:
            raise InputError("R105", "there are no rows to evaluate", place=self.call, help="give at least one")
        pieces = self.cut(dims, self.tensors, pad=False)
        if len({program.carried for program, _ in pieces}) > 1:
            sizes = sorted({program.sizes[batch or ""] for program, _ in pieces})
            raise InputError(
                "R105",
                f"{dims[batch or '']} rows would run in batches of {' and '.join(map(str, sizes))}, between which the "
                f"state `{pieces[0][0].carried[0].name}` cannot be carried",
                place=self.call,
                help=f"give a multiple of {sizes[-1]} rows",
            )
        return pieces

    def run(
        self,
        context: Context,
        arrays: Arrays,
        pieces: Sequence[Piece],
        scalars: Mapping[str, int | float],
    ) -> EvalResult:
        each = ((program, piece, piece, arrays) for program, piece in pieces)
        return self._finished(context, self._partials(context, each, scalars), self._rows(pieces), scalars)

    def pieces_of(self, rows: int) -> list[Piece]:
        """The pieces of ``rows`` rows, for the built sizes of the other dims."""
        batch = self.interface.batch
        others = {name: size for name, size in self.programs[0].sizes.items() if name != batch}
        return self.pieces(others if batch is None else {**others, batch: rows})

    def run_each(
        self,
        context: Context,
        pieces: Sequence[Piece],
        parts: Iterable[Mapping[str, object]],
        arguments: Mapping[str, object],
        scalars: Mapping[str, int | float],
        group: Exchange | None = None,
    ) -> EvalResult:
        """Like ``run``, with separate inputs for each piece. ``group``: the processes that share the pieces; ``parts``
        has the inputs of ``own_pieces``."""
        values = {n: number(self.call, n, arguments.get(n, v)) for n, v in self.defaults.items()}
        scalars = {**scalars, **values}

        def each() -> Iterator[tuple[Loaded, Cut | None, Cut | None, Arrays]]:
            for (program, piece), part in zip(own_pieces(pieces, group), parts, strict=True):
                yield program, piece, None, self.checked({**part, **arguments})[0]

        partials = self._partials(context, each(), scalars)
        if group is not None:
            partials = of_all(partials, pieces[0][0].plan, len(pieces), group)
        return self._finished(context, partials, self._rows(pieces), scalars)

    def _rows(self, pieces: Sequence[Piece]) -> int:
        batch = self.interface.batch or ""
        return sum(program.sizes.get(batch, 0) if piece is None else piece.rows for program, piece in pieces)

    def _partials(
        self,
        context: Context,
        each: Iterable[tuple[Loaded, Cut | None, Cut | None, Arrays]],
        scalars: Mapping[str, int | float],
    ) -> Iterator[Outputs]:
        """The partial results of each piece, valid until the next. ``each`` yields per piece: the program, its rows in
        the call, its rows in the arrays (None: all), the arrays."""
        started = False
        for program, piece, inside, arrays in each:
            if not started:  # all pieces have the same states
                context.start(program)
                started = True
            start = 0 if piece is None else piece.start
            bound = context.feed(program, arrays, {**scalars, "row": scalars["row"] + start}, inside, self.by_row)
            yield bound.run()

    def _finished(
        self, context: Context, partials: Iterable[Outputs], rows: int, scalars: Mapping[str, int | float]
    ) -> EvalResult:
        """Combine the partial results in the order of the pieces, and compute loss and metrics from them."""
        total: dict[str, NDArray[Any]] = {}
        for outputs in partials:
            for name, kind, view in outputs:
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
    """Combines the partial results of two batches. A NaN in either stays NaN."""
    with np.errstate(all="ignore"):
        match kind:
            case "partial.sum" | "count":
                return np.asarray(total + value)
            case "partial.max":
                return np.asarray(np.maximum(total, value))
            case "partial.min":
                return np.asarray(np.minimum(total, value))
    raise ArtifactError("R301", f"eval_step gives a {kind!r}, which cannot be combined", place="eval_step")
