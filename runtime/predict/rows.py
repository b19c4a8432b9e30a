"""The rows of a prediction: opened and checked like evaluation data, read in batches, predicted in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.base.turns import Always
from dslc.runtime.artifact.dtypes import MOST_ELEMENTS
from dslc.runtime.data.columns.fitted import Fitted
from dslc.runtime.data.format import ArrayFormat
from dslc.runtime.data.names import format_of
from dslc.runtime.data.pictures import AS_STORED
from dslc.runtime.data.source import files
from dslc.runtime.data.tables.table import chosen
from dslc.runtime.data.tables.table_format import TableFormat
from dslc.runtime.session.inputs.shapes import solved
from dslc.runtime.train.data import Dataset
from dslc.runtime.train.open_dataset import DataSection

if TYPE_CHECKING:
    from dslc.runtime.config.config import DataConfig
    from dslc.runtime.data.source import Source
    from dslc.runtime.session.session import Session
    from dslc.runtime.train.trainable import Declared

_AT_ONCE: Final = 64 << 20  # bytes of the inputs of one call


@dataclass(frozen=True)
class Predicted:
    """Results of consecutive rows. ``names``: what the data calls each row, None if it has no names. ``results``: by
    name; one without rows is the same in each batch."""

    names: Sequence[str] | None
    results: Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Rows:
    """The data of a prediction. ``names``: what the data calls its rows, None if it has no names."""

    session: Session
    data: Dataset
    names: Sequence[str] | None

    @property
    def count(self) -> int:
        return self.data.rows

    def batches(self, workers: int) -> Iterator[Predicted]:
        """The results of all rows, in order. Batches change no bit: each has whole batches of the largest built size.

        ``workers`` processes read ahead. Raises DataError R101 and R103 for a row that cannot be read.
        """
        session, step = self.session, self.step()
        starts = range(0, self.count, step)
        tasks = ((self.data.index[start : start + step], 0) for start in starts)
        feed = self.data.feed(tasks, workers)
        with Always(feed.close), Always(feed.close):
            for start, arrays in zip(starts, feed):
                found = session.predict(**arrays, row=start)
                names = None if self.names is None else self.names[start : start + step]
                yield Predicted(names, _by_name(session, found))

    def step(self) -> int:
        """The rows of one call: all of them if the model's rows depend on each other."""
        interface, artifact = self.session.interface, self.session.artifact
        sizes = [dict(p.sizes).get(interface.batch or "", 0) for p in artifact.programs("predict")]
        apart = artifact.header["row_independent"] and all(map(interface.rows_of, interface.results))
        if not (self.data.columns and apart and all(sizes)):
            return max(1, self.count)
        row = sum(prod(c.wanted.shape) * c.rows.dtype.itemsize for c in self.data.columns.values())
        largest = max(sizes)
        return largest * max(1, _AT_ONCE // max(1, row * largest))


def open_rows(
    session: Session,
    sources: Mapping[str, Source],
    notice: Callable[[str], None],
    config: DataConfig | None = None,
    names: Source | None = None,
) -> Rows:
    """``open_data`` for a session and its weights."""
    return Rows(session, *open_data(session, sources, session.weights.notes, notice, config, names))


def open_data(
    model: Declared,
    sources: Mapping[str, Source],
    notes: Mapping[str, str],
    notice: Callable[[str], None],
    config: DataConfig | None = None,
    names: Source | None = None,
) -> tuple[Dataset, Sequence[str] | None]:
    """Open the data of the inputs of a model, which need not be built yet; returns it and the names of its rows.
    ``notes``: those of the weights. ``config`` says how pictures are decoded, which tokenizer reads text, and
    the steps of an augmentation, of which evaluation takes ``normalize``. ``names``: a column of a table that names the
    rows. What was fitted in training comes from the weights. Raises DataError R101 to R103 and R106, ArtifactError R306
    for malformed notes of the weights."""
    interface = replace(model.interface, train=None)
    wanted = {tensor.name for tensor in interface.inputs}
    data = DataSection(
        sources,
        interface,
        _sizes(model, sources),
        "predict",
        check_finite=False,
        notice=notice,
        augment={} if config is None else {n: steps for n, steps in config.augment.items() if n in wanted},
        images=AS_STORED if config is None else config.images,
        tokenizer=None if config is None else config.tokenizer,
        fitted=Fitted.of_notes(notes, "the weights") or Fitted(),
    ).open()
    if data.tokenizer is not None:
        data.tokenizer.require_trained(notes)
    return data, _names(sources, data) if names is None else _column(names, data)


def _sizes(model: Declared, sources: Mapping[str, Source]) -> dict[str, int]:
    """The value of each dim: what arrays in files say, else the largest built size."""
    interface = model.interface
    shapes = {}
    for tensor in interface.inputs:
        format = format_of(sources[tensor.name])
        if isinstance(format, ArrayFormat):
            first = files(sources[tensor.name], lambda text: None, f"predict.{tensor.name}")[0]
            shape = format.shape(first)
            if len(shape) == len(tensor.shape):  # the format may leave out axes; other ranks are told on opening
                shapes[tensor] = shape
    built = max((dict(p.sizes) for p in model.artifact.programs("predict")), key=lambda sizes: sorted(sizes.items()))
    free = [replace(dim, low=0, high=MOST_ELEMENTS) if dim.batch else dim for dim in interface.dims]
    return {**built, **solved("predict", shapes, free)}


def _names(sources: Mapping[str, Source], data: Dataset) -> list[str] | None:
    """The rows' names, from the first input whose data has any."""
    for name, column in data.columns.items():
        parts = [format_of(source).row_names(source) for source in column.wanted.files]
        whole = [each for part in parts if part is not None for each in part]
        if whole and None not in parts:
            if len(whole) != column.rows.count:
                cause = f"it has {column.rows.count} rows and {len(whole)} names"
                raise DataError("R101", cause, place=sources[name].name, help="do not change it while it is read")
            return [whole[row] for row in data.index.tolist()]
    return None


def _column(source: Source, data: Dataset) -> list[str]:
    """The texts of a column of a table. DataError R102 for another source, or another number of rows."""
    format = format_of(source)
    if not isinstance(format, TableFormat):
        raise DataError("R102", "row names come from a table", place=source.name, help="name a column: new.csv:id")
    found: list[str] = []
    parts = [(each, format.table(each)) for each in files(source, lambda text: None, "--rows")]
    try:
        count = sum(table.count for _, table in parts)
        if count != next((column.rows.count for column in data.columns.values()), 1):
            cause = f"it has {count} rows, the data {data.rows}"
            raise DataError("R102", cause, place=source.name, help="row i of each file must belong to the same sample")
        start = 0
        for part, table in parts:
            inside = data.index[(data.index >= start) & (data.index < start + table.count)] - start
            columns, wrong = table.read(inside, chosen(part, table.names))
            if wrong or len(columns) != 1:
                why = next(iter(wrong.values()), "one column names the rows")
                raise DataError("R102", why, place=part.name, help="name a column: new.csv:id")
            [raw] = columns
            found += ["" if gap else str(value) for value, gap in zip(raw.values.tolist(), raw.missing.tolist())]
            start += table.count
        return found
    finally:
        for _, table in parts:
            table.close()


def _by_name(session: Session, found: Any) -> dict[str, NDArray[Any]]:
    results = session.interface.results
    values = [found] if len(results) == 1 else list(found)
    return {r.name: _floats(value) if r.dtype == "bf16" else value for r, value in zip(results, values, strict=True)}


def _floats(bits: NDArray[Any]) -> NDArray[np.float32]:
    """bf16, which numpy and file formats lack, as f32 with equal values."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
