"""The data of a run: files checked against the model's interface on opening, and batches in a deterministic order.

Order. The sort key of row i in epoch e is the i-th 64-bit output of Philox4x64-10 with the key (seed, e) (numpy's
``Philox``, whose raw stream is stable across versions). Rows are sorted by key, ties by row number. So the order
depends only on (seed, epoch, global row), never on workers or devices. Batch b has the rows b*B to (b+1)*B of that
order; an incomplete last batch is dropped. A position in the data is (epoch, batch).

A split holds back the first round(fraction * rows) rows in the order of the epoch 2^64 - 1.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.base.turns import Always
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.artifact.interface import Interface, dims_of, size_value
from dslc.runtime.data.augment.inputs import check_mix, nearest_of, steps_of
from dslc.runtime.data.augment.mix import Mix
from dslc.runtime.data.augment.step import Step
from dslc.runtime.data.column import Column, open_column, read_whole
from dslc.runtime.data.columns.fitted import Fitted
from dslc.runtime.data.columns.fitting import TableInput
from dslc.runtime.data.examples import line_for
from dslc.runtime.data.names import format_of
from dslc.runtime.data.pairs import paired
from dslc.runtime.data.pictures import AS_STORED, NOTE, PictureOptions, decoder
from dslc.runtime.data.rows import BadSample, faults_of
from dslc.runtime.data.source import Source, files
from dslc.runtime.data.tables.table import Table
from dslc.runtime.data.tools import Tools
from dslc.runtime.data.wanted import Wanted
from dslc.runtime.data.windows import aligned
from dslc.runtime.data.workers import Workers, unreadable
from dslc.runtime.nearest import nearest
from dslc.runtime.train.fitted_data import Described, fit_inputs, need, require_classes

if TYPE_CHECKING:
    from dslc.runtime.data.text.tokenize import Tokenizer

_TRIED: Final = 256  # doubtful pictures of an input that are decoded before the first step
_SPLIT_EPOCH: Final = 2**64 - 1


def shuffled(seed: int, epoch: int, rows: int) -> NDArray[np.int64]:
    """The order of the rows in an epoch, i64[rows]."""
    keys = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64)).random_raw(rows)
    return np.argsort(keys, kind="stable")


class Tolerance:
    """Counts bad samples and tolerates up to ``skip`` of them. Each row counts once, whoever reads it."""

    def __init__(self, skip: int, warn: Callable[[str], None]) -> None:
        self.skip = skip
        self.rows: set[int] = set()
        self._warn = warn

    def note(self, bad: BadSample, section: str) -> None:
        """Count a bad sample. DataError R101 if it exceeds the limit."""
        if bad.row in self.rows:
            return
        self.rows.add(bad.row)
        place = bad.place or f"record {bad.row} of {section}"
        if len(self.rows) > self.skip:
            help = "fix or remove it; `data.on_bad: skip 10` tolerates ten such samples"
            raise DataError("R101", f"record {bad.row} cannot be read: {bad.why}", place=place, help=help)
        self._warn(f"{place}: record {bad.row} is skipped: {bad.why} ({len(self.rows)} of {self.skip} such samples)")

    def good(self, rows: NDArray[np.int64], section: str) -> NDArray[np.int64]:
        """The rows, with each bad row replaced by the first good row among them. DataError R106 if none is good."""
        if not self.rows:
            return rows
        wrong = np.isin(rows, np.fromiter(self.rows, np.int64))
        if not wrong.any():
            return rows
        if wrong.all():
            raise DataError(
                "R106", f"none of the {len(rows)} rows of a batch can be read", place=section, help="fix or remove them"
            )
        return np.where(wrong, rows[np.argmin(wrong)], rows)


@dataclass(frozen=True)
class Dataset:
    """``columns``: inputs whose axis 0 is the row; ``whole``: inputs that every step gets unchanged.

    ``index`` are the rows of the files that belong to this dataset, i64[rows]. Rows are always denoted by their numbers
    in the files. ``fitted`` is what was fitted to the training rows. ``tokenizer``: the one that made tokens of texts.
    """

    section: str
    columns: Mapping[str, Column]
    whole: Mapping[str, NDArray[Any]]
    index: NDArray[np.int64]
    seed: int
    training: bool
    tolerance: Tolerance
    fitted: Fitted
    mix: Mix | None = None
    share: str = "float32"
    tokenizer: Tokenizer | None = None

    @property
    def rows(self) -> int:
        """The number of rows; 1 without a batch dim, because the whole data is then one batch."""
        return len(self.index)

    def decoder_note(self) -> dict[str, str]:
        """The note of what decodes the pictures; empty if there are none."""
        return {NOTE: decoder()} if any(column.decodes for column in self.columns.values()) else {}

    def tokenizer_note(self) -> dict[str, str]:
        """The note of the tokenizer that made the tokens; empty if none did."""
        return {} if self.tokenizer is None else self.tokenizer.note

    def batches(self, batch: int) -> int:
        """Batches per epoch. Without a batch dim the whole data is one batch."""
        return self.rows // batch if self.columns else 1

    def order(self, seed: int, epoch: int, *, shuffle: bool) -> NDArray[np.int64]:
        return self.index[shuffled(seed, epoch, self.rows)] if shuffle else self.index

    def take(self, rows: NDArray[np.int64], epoch: int = 0) -> dict[str, Any]:
        """Fresh arrays of these rows, and the whole inputs. A bad row is replaced by a good row of the same call.

        Raises DataError R101 if there are too many bad rows, R103 for a value out of range.
        """
        while True:
            rows = self.tolerance.good(rows, self.section)
            try:
                return self._batch(self._read(self.columns, rows, epoch), rows, epoch)
            except BadSample as bad:
                self.tolerance.note(bad, self.section)

    def _read(self, columns: Iterable[str], rows: NDArray[np.int64], epoch: int) -> dict[str, Any]:
        return {name: self.columns[name].batch(rows, self.seed, epoch, training=self.training) for name in columns}

    def _batch(self, read: dict[str, Any], rows: NDArray[np.int64], epoch: int) -> dict[str, Any]:
        """The inputs of these rows: those read, the whole ones, and those that tell how rows were mixed."""
        mix, found = self.mix, {**read, **self.whole}
        if mix is not None:
            other, share = found[mix.label], 1.0
            if self.training:
                shape = self.columns[mix.image].wanted.shape
                other, share = mix.labels(other, shape, rows, self.seed, epoch)
            found |= {mix.other: other, mix.share: np.full(len(rows), share, self.share)}
        return found

    def feed(
        self, tasks: Iterable[tuple[NDArray[np.int64], int]], workers: int
    ) -> Generator[dict[str, Any], None, None]:
        """The result of ``take`` for each (rows, epoch), in order; an array may be reused for the next result.

        ``workers`` processes read ahead data that is in files, and data whose augmentation is costly; images use at
        least one, because a decoder may crash.
        The results do not depend on the number of workers. The first rows array of a call must be the longest one.
        """
        costly = self.training and workers > 0
        far = [name for name, column in self.columns.items() if not column.rows.in_memory or (costly and column.costly)]
        count = max(workers, 1) if any(self.columns[name].decodes for name in far) else workers
        if not far or count == 0:
            for rows, epoch in tasks:
                yield self.take(rows, epoch)
            return
        todo = iter(tasks)
        first = next(todo, None)
        if first is None:
            return
        near = [name for name in self.columns if name not in far]
        pool = Workers(
            [self.columns[name].wanted for name in far],
            rows=len(first[0]),
            count=count,
            seed=self.seed,
            training=self.training,
        )
        with Always(pool.close), Always(pool.close):
            pool.start()
            yield from self._ahead(pool, near, first, todo)

    def _ahead(
        self,
        pool: Workers,
        near: Sequence[str],
        first: tuple[NDArray[np.int64], int],
        todo: Iterator[tuple[NDArray[np.int64], int]],
    ) -> Iterator[dict[str, Any]]:
        asked: list[tuple[NDArray[np.int64], int]] = []

        def ask(rows: NDArray[np.int64], epoch: int) -> None:
            good = self.tolerance.good(rows, self.section)
            asked.append((good, epoch))
            pool.ask(good, epoch)

        ask(*first)
        while asked:
            while pool.room and (task := next(todo, None)) is not None:
                ask(*task)
            rows, epoch = asked[0]
            while True:
                try:
                    found = pool.oldest(len(rows))
                    # A row that another batch found bad is replaced here as it would be without workers.
                    good = self.tolerance.good(rows, self.section)
                    if good is rows:
                        break
                    rows = good
                except BadSample as bad:
                    self.tolerance.note(bad, self.section)
                    rows = self.tolerance.good(rows, self.section)
                pool.ask_again(rows, epoch)
            yield self._batch({**self._read(near, rows, epoch), **found}, rows, epoch)
            pool.done()
            asked.pop(0)

    def parted(self, fraction: float) -> tuple[Dataset, Dataset]:
        """The rows to train on, and those held back for evaluation. DataError R106 if a part would be empty."""
        kept, held = _parted(self.index, fraction, self.seed)
        return replace(self, index=kept), replace(self, index=held, training=False)


def _parted(index: NDArray[np.int64], fraction: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows to train on, and those held back. DataError R106 if a part would be empty."""
    count = round(fraction * len(index))
    if not 0 < count < len(index):
        cause = f"{fraction:g} of {len(index)} rows leaves one part empty"
        raise DataError("R106", cause, place="data.split", help="use another fraction or more data")
    order = shuffled(seed, _SPLIT_EPOCH, len(index))
    return index[np.sort(order[count:])], index[np.sort(order[:count])]


def open_dataset(
    sources: Mapping[str, Source],
    interface: Interface,
    sizes: Mapping[str, int],
    section: str,
    *,
    check_finite: bool,
    notice: Callable[[str], None],
    seed: int = 0,
    training: bool = False,
    augment: Mapping[str, Sequence[Step] | str] | None = None,
    images: PictureOptions = AS_STORED,
    tolerance: Tolerance | None = None,
    described: Described | None = None,
    fitted: Fitted | None = None,
    split: float | None = None,
    tokenizer: Path | None = None,
    mix: Mix | None = None,
) -> Dataset:
    """Open and check the data of a section (``data.train``) for the interface's train inputs.

    ``sizes`` gives each dim its built size. Files are converted to the declared dtypes if nothing is lost; f64 to f32
    rounds, which is reported to ``notice``. ``seed``, ``training`` and ``augment`` (by input: steps, or the input
    whose mask it is) determine how rows are augmented, ``images`` how pictures are decoded.
    ``fitted`` is what an earlier training fitted; None: fit the columns that are ``described`` to the rows, without
    those that ``split`` holds back. ``tokenizer``: the file of a tokenizer, for text. ``mix``: what mixes rows of a
    batch in training.
    Raises DataError R101 to R104 and R106, naming file, record, value.
    """
    tolerance = tolerance if tolerance is not None else Tolerance(0, notice)
    wanted = {tensor.name: tensor for tensor in interface.train_inputs}
    for names, place in ((sources, section), (augment or {}, "data.augment")):
        for name in names:
            if name not in wanted:
                close = nearest(name, wanted)
                help = f"did you mean `{close}`?" if close else f"its inputs are {', '.join(wanted)}"
                raise DataError("R102", f"the model has no input `{name}`", place=f"{place}.{name}", help=help)
    opening: dict[str, Wanted] = {}
    wants: dict[str, Wanted] = {}
    whole: dict[str, NDArray[Any]] = {}
    if mix is not None:
        check_mix(mix, interface, sources)
    for name, tensor in wanted.items():
        if mix is not None and name in (mix.other, mix.share):
            continue
        if name not in sources:
            help = line_for(tensor, [(wanted[other], source) for other, source in sources.items()], section)
            raise DataError("R102", f"there is no data for the input `{name}`: {tensor}", place=section, help=help)
        rows = interface.rows_of(tensor)
        if not rows and any(interface.batch in dims_of(size) for size in tensor.shape):
            cause = f"the input `{name}`: {tensor} cannot be divided into batches along {interface.batch}"
            raise DataError("R102", cause, place=f"{section}.{name}", help=f"make {interface.batch} its first axis")
        shape = tuple(size_value(size, sizes) for size in tensor.shape)
        field = f"{section}.{name}"
        steps, mask = steps_of(augment or {}, name)
        if not rows and steps:
            help = "remove it from data.augment"
            raise DataError(
                "R104", f"the input `{name}` has no rows to augment", place=f"data.augment.{name}", help=help
            )
        if not training:
            steps = tuple(step for step in steps if step.always)
        if tensor.range is not None and all(tensor.name != each.name for each in interface.inputs):
            # The classes of a target have no values between them.
            steps, mask = steps if mask else nearest_of(steps), True
        pictures = replace(images, mask=mask)
        found = tuple(files(sources[name], notice, field))
        row = shape[1:] if rows else shape
        opening[name] = Wanted(field, found, tensor, row, check_finite, steps, pictures, tokenizer=tokenizer)
        if mix is not None and name == mix.image:
            opening[name] = replace(opening[name], mix=mix)
    opening = paired(opening)
    tools = Tools(tokenizer, notice, tuple(opening.values()))
    for name, want in opening.items():
        opening[name] = replace(want, files=tuple(format_of(s).prepared(s, want, tools) for s in want.files))
    for name, want in aligned(opening).items():
        if interface.rows_of(want.tensor):
            wants[name] = want
        else:
            whole[name] = read_whole(want, notice)
    given = tolerance

    def training_rows(opened: Mapping[str, TableInput | Column]) -> NDArray[np.int64]:
        index = _readable(opened, _rows(opened, sources, section), section, given)
        return index if split is None else _parted(index, split, seed)[0]

    kept_open: list[Table] = []
    if fitted is None:
        fitted = fit_inputs(wants, described or {}, training_rows, lambda bad: given.note(bad, section), kept_open)
        if training:
            require_classes(wants, fitted, notice)
    for name, want in wants.items():
        if name not in fitted.classes and format_of(want.files[0]).class_names(want.files[0]):
            notice(f"{want.field}: the weights name no classes; those of {want.files[0].name} count in their own order")
    columns = {name: open_column(need(fitted, want), notice) for name, want in wants.items()}
    count = _rows(columns, sources, section)
    index = _readable(columns, count, section, tolerance)
    for name, column in columns.items():
        looked = faults_of(column.rows, notice, f"{section}.{name}")
        known = {at: (place, why) for at, (place, why) in looked.items() if why is not None}
        doubtful = sorted(looked.keys() - known.keys())
        for at, (place, why) in sorted({**known, **unreadable(column.wanted, doubtful[:_TRIED])}.items()):
            tolerance.note(BadSample(at, place or looked[at][0], why), section)
    share = "float32" if mix is None else numpy_dtype(wanted[mix.share].dtype).name
    return Dataset(section, columns, whole, index, seed, training, tolerance, fitted, mix, share, tools.tokenizer_used)


def _rows(columns: Mapping[str, TableInput | Column], sources: Mapping[str, Source], section: str) -> int:
    counts = {name: column.rows.count for name, column in columns.items()}
    # Windows of one text with different shifts: as many as every column has.
    for name, column in columns.items():
        if format_of(column.wanted.files[0]).windows:
            same = [n for n, c in columns.items() if c.wanted.files[0].path == column.wanted.files[0].path]
            counts[name] = min(columns[n].rows.count for n in same)
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{sources[name].name} has {count}" for name, count in counts.items())
        help = "row i of each file must belong to the same sample"
        raise DataError("R102", f"the numbers of rows differ: {listed}", place=section, help=help)
    rows = next(iter(counts.values()), 1)
    if rows == 0:
        raise DataError("R106", "there are no rows", place=section, help="name a file with data")
    return rows


def _readable(
    columns: Mapping[str, TableInput | Column], count: int, section: str, tolerance: Tolerance
) -> NDArray[np.int64]:
    """The rows except those found bad on opening; those that do not fit what was fitted only count."""
    found = np.ones(count, bool)
    for column in columns.values():
        for row, (place, why) in sorted(column.bad.items()):
            tolerance.note(BadSample(row, place, why), section)
            found[row] = False
    for column in columns.values():
        for row, (place, why) in sorted(column.late.items()):
            tolerance.note(BadSample(row, place, why), section)
    if not found.any():
        raise DataError("R106", "no row can be read", place=section, help="name a file with data")
    return np.flatnonzero(found)
