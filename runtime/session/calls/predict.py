"""``predict``: returns results row by row if they have rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np

from dslc.base.errors import InputError
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.artifact.interface import Dim, Interface, Tensor, size_value
from dslc.runtime.session.backend import LateOutputs
from dslc.runtime.session.calls.call import Arrays, Call, unbounded
from dslc.runtime.session.host_copies import copied, copies, copy_into

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.session.backend import Backend, DeviceBound, Outputs
    from dslc.runtime.session.batches import Cut
    from dslc.runtime.session.context import Context, Holder, Loaded, States
    from dslc.runtime.session.inputs.check import Look

    Kept: TypeAlias = tuple[Holder | None, States | None]
    _Begun: TypeAlias = tuple[Outputs, Cut | None]


AFRESH: Final[Kept] = (None, None)


class Predict(Call):
    """``predict``: returns results row by row if they have rows."""

    entry = call = "predict"
    converts = True

    def __init__(
        self, interface: Interface, programs: Sequence[Loaded], look: Look, row_independent: bool, together: bool
    ) -> None:
        super().__init__(interface, programs, look)
        self.row_independent = row_independent
        self.together = together
        self._row_results = frozenset(r.name for r in interface.results if interface.rows_of(r))
        self._cut: tuple[Mapping[str, int], list[tuple[Loaded, Cut | None]]] | None = None  # of the last call

    @cached_property
    def bounds(self) -> tuple[Dim, ...]:
        """The dims; the batch dim's bounds apply to one run, so they do not limit the call if rows are independent."""
        if not self.row_independent:
            return self.interface.dims
        return tuple(unbounded(d) if d.batch else d for d in self.interface.dims)

    def check(self, given: Mapping[str, object]) -> tuple[Arrays, dict[str, int]]:
        arrays, _, dims = self.checked(given)
        return arrays, dims

    def not_built(self, dims: Mapping[str, int]) -> InputError:
        found = super().not_built(dims)
        if self.together:
            found.message += ": its results depend on the number of rows of a call, so it is not cut into pieces"
        return found

    def pieces(self, dims: Mapping[str, int]) -> list[tuple[Loaded, Cut | None]]:
        """The runs of a call, in the order of their rows; found once for calls of the same sizes in a row."""
        last = self._cut
        if last is None or last[0] != dims:
            self._cut = last = dict(dims), self._pieces(dims)
        return last[1]

    def _pieces(self, dims: Mapping[str, int]) -> list[tuple[Loaded, Cut | None]]:
        tensors = self.interface.inputs + self.interface.results
        if self.together or (not self.row_independent and not all(map(self.interface.rows_of, self.interface.results))):
            # A result without rows may be a sum over all rows, so pieces cannot be combined.
            return [(self.matching(dims, whole=True)[0], None)]
        return self.cut(dims, tensors, pad=self.row_independent)

    def run(
        self,
        context: Context,
        arrays: Arrays,
        dims: Mapping[str, int],
        pieces: list[tuple[Loaded, Cut | None]],
        scalars: Mapping[str, int | float],
        states: Kept = AFRESH,
    ) -> Any:
        """An array, or the named tuple of the interface. Owned by the caller. ``states``: the states of a model that
        carries some; by default each run starts with the initial ones."""
        results: dict[str, NDArray[Any]] = {}
        if len(pieces) == 1:
            outputs, piece = self._begin(context, arrays, *pieces[0], scalars, states)
            results = _owned(outputs, {} if piece is None else dict.fromkeys(self._row_results, piece.rows))
            return self._given(results)
        for outputs, piece in _behind(self._begin(context, arrays, *each, scalars, states) for each in pieces):
            for name, _, view in outputs:
                if piece is None or name not in self._row_results:
                    results.setdefault(name, copied(view))
                    continue
                if name not in results:
                    rows_of_all = dims[self.interface.batch or ""]
                    results[name] = np.empty((rows_of_all, *view.shape[1:]), view.dtype)
                copy_into(results[name][piece.start : piece.start + piece.rows], view[: piece.rows])
        if not pieces:
            results = {r.name: np.zeros(_shape(r, dims), numpy_dtype(r.dtype)) for r in self.interface.results}
        return self._given(results)

    def _begin(
        self,
        context: Context,
        arrays: Arrays,
        program: Loaded,
        piece: Cut | None,
        scalars: Mapping[str, int | float],
        states: Kept,
    ) -> _Begun:
        context.start(program, *states)
        start = 0 if piece is None else piece.start
        values = {**scalars, "row": scalars["row"] + start}
        return context.feed(program, arrays, values, piece, self.by_row, once=True).run(), piece

    def run_on_device(
        self,
        context: Context,
        backend: Backend,
        arrays: Arrays,
        dims: Mapping[str, int],
        pieces: list[tuple[Loaded, Cut | None]],
        scalars: Mapping[str, int | float],
        states: Kept = AFRESH,
    ) -> Any:
        """Like ``run``, with results in the device's memory."""
        sizes = {**(pieces[0][0].sizes if pieces else {}), **dims}
        results = {r.name: backend.new_array(r.dtype, _shape(r, sizes)) for r in self.interface.results}
        for program, piece in pieces:
            context.start(program, *states)
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


def _behind(runs: Iterable[_Begun]) -> Iterator[_Begun]:
    """Outputs that are late, each after the next run has begun, so that the host copies them and feeds the run after
    that while a GPU computes; others at once, because the next run overwrites them."""
    late: list[_Begun] = []
    for each in runs:
        yield from late
        late = [each] if isinstance(each[0], LateOutputs) else []
        if not late:
            yield each
    yield from late


def _owned(outputs: Outputs, rows: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    if isinstance(outputs, LateOutputs):
        return outputs.given(rows)
    return copies(((name, view) for name, _, view in outputs), rows)


def _shape(result: Tensor, dims: Mapping[str, int]) -> list[int]:
    return [size_value(size, dims) for size in result.shape]
