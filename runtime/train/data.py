"""The data of a run: batches in a deterministic order. ``open_dataset.py`` opens it.

Order. The sort key of row i in epoch e is the i-th 64-bit output of Philox4x64-10 with the key (seed, e) (numpy's
``Philox``, whose raw stream is stable across versions). Rows are sorted by key, ties by row number. So the order
depends only on (seed, epoch, global row), never on workers or devices. Batch b has the rows b*B to (b+1)*B of that
order; an incomplete last batch is dropped. A position in the data is (epoch, batch).

A split holds back the first round(fraction * rows) rows in the order of the epoch 2^64 - 1.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.base.turns import Always
from dslc.runtime.data.augment.mix import Mix
from dslc.runtime.data.column import Column
from dslc.runtime.data.columns.fitted import Fitted
from dslc.runtime.data.pictures import NOTE, decoder
from dslc.runtime.data.rows import BadSample
from dslc.runtime.data.workers import Workers
from dslc.runtime.train.tolerance import Tolerance

if TYPE_CHECKING:
    from dslc.runtime.data.text.tokenize import Tokenizer

_SPLIT_EPOCH: Final = 2**64 - 1


def shuffled(seed: int, epoch: int, rows: int) -> NDArray[np.int64]:
    """The order of the rows in an epoch, i64[rows]."""
    keys = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64)).random_raw(rows)
    return np.argsort(keys, kind="stable")


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
        """Fresh arrays of these rows, and the whole inputs. A bad row is replaced by a good row of the same call, else
        of the dataset.

        Raises DataError R101 if there are too many bad rows, R103 for a value out of range.
        """
        while True:
            rows = self.tolerance.good(rows, self.index, self.section)
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
            good = self.tolerance.good(rows, self.index, self.section)
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
                    good = self.tolerance.good(rows, self.index, self.section)
                    if good is rows:
                        break
                    rows = good
                except BadSample as bad:
                    self.tolerance.note(bad, self.section)
                    rows = self.tolerance.good(rows, self.index, self.section)
                pool.ask_again(rows, epoch)
            yield self._batch({**self._read(near, rows, epoch), **found}, rows, epoch)
            pool.done()
            asked.pop(0)

    def parted(self, fraction: float) -> tuple[Dataset, Dataset]:
        """The rows to train on, and those held back for evaluation. DataError R106 if a part would be empty."""
        kept, held = parted_rows(self.index, fraction, self.seed)
        return replace(self, index=kept), replace(self, index=held, training=False)


def parted_rows(index: NDArray[np.int64], fraction: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows to train on, and those held back. DataError R106 if a part would be empty."""
    count = round(fraction * len(index))
    if not 0 < count < len(index):
        cause = f"{fraction:g} of {len(index)} rows leaves one part empty"
        raise DataError("R106", cause, place="data.split", help="use another fraction or more data")
    order = shuffled(seed, _SPLIT_EPOCH, len(index))
    return index[np.sort(order[count:])], index[np.sort(order[:count])]
