"""Opens the data of a section, and checks it against the model's interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.artifact.interface import Interface, Tensor, dims_of, size_value
from dslc.runtime.data.augment.inputs import check_mix, nearest_of, steps_of
from dslc.runtime.data.augment.mix import Mix
from dslc.runtime.data.augment.step import Step
from dslc.runtime.data.column import Column, open_column, read_whole
from dslc.runtime.data.columns.fitted import Fitted
from dslc.runtime.data.columns.fitting import TableInput
from dslc.runtime.data.examples import line_for
from dslc.runtime.data.names import format_of
from dslc.runtime.data.pairs import paired
from dslc.runtime.data.pictures import AS_STORED, PictureOptions
from dslc.runtime.data.rows import BadSample, faults_of
from dslc.runtime.data.source import Source, files
from dslc.runtime.data.tables.table import Table
from dslc.runtime.data.tools import Tools
from dslc.runtime.data.wanted import Wanted
from dslc.runtime.data.windows import aligned
from dslc.runtime.data.workers import unreadable
from dslc.runtime.nearest import nearest
from dslc.runtime.train.data import Dataset, parted_rows
from dslc.runtime.train.fitted_data import Described, fit_inputs, need, require_classes
from dslc.runtime.train.tolerance import Tolerance

_TRIED: Final = 256  # doubtful pictures of an input that are decoded before the first step


@dataclass(frozen=True)
class DataSection:
    """The data of a section (``data.train``) for the interface's train inputs, and how it is read.

    ``sizes``: the built size of each dim. ``notice``: takes what the user should know, such as that f64 is rounded to
    f32. ``seed``, ``training`` and ``augment`` (by input: steps, or the input whose mask it is) determine how rows are
    augmented, ``images`` how pictures are decoded. ``fitted``: what an earlier training fitted; None: fit the columns
    that are ``described`` to the rows, without those that ``split`` holds back. ``tokenizer``: the file of a tokenizer,
    for text. ``mix``: what mixes rows of a batch in training. ``tolerance``: by default none.
    """

    sources: Mapping[str, Source]
    interface: Interface
    sizes: Mapping[str, int]
    section: str
    _: KW_ONLY
    check_finite: bool
    notice: Callable[[str], None]
    seed: int = 0
    training: bool = False
    augment: Mapping[str, Sequence[Step] | str] | None = None
    images: PictureOptions = AS_STORED
    tolerance: Tolerance | None = None
    described: Described | None = None
    fitted: Fitted | None = None
    split: float | None = None
    tokenizer: Path | None = None
    mix: Mix | None = None

    def open(self) -> Dataset:
        """Opens and checks it. Files are converted to the declared dtypes if nothing is lost; f64 to f32 rounds. Raises
        DataError R101 to R104 and R106, naming file, record, value."""
        tolerance = Tolerance(0, self.notice) if self.tolerance is None else self.tolerance
        self._check_names()
        wanted = paired({name: self._wanted(tensor) for name, tensor in self._tensors.items()})
        tools = Tools(self.tokenizer, self.notice, tuple(wanted.values()))
        for name, want in wanted.items():
            wanted[name] = replace(want, files=tuple(format_of(s).prepared(s, want, tools) for s in want.files))
        wanted = aligned(wanted)
        with_rows = {name: want for name, want in wanted.items() if self.interface.rows_of(want.tensor)}
        whole = {name: read_whole(want, self.notice) for name, want in wanted.items() if name not in with_rows}
        kept_open: list[Table] = []
        fitted = self._fitted(with_rows, tolerance, kept_open)
        for want in with_rows.values():
            first = want.files[0]
            if want.tensor.name not in fitted.classes and format_of(first).class_names(first):
                why = f"the weights name no classes; those of {first.name} count in their own order"
                self.notice(f"{want.field}: {why}")
        columns = {name: open_column(need(fitted, want), self.notice) for name, want in with_rows.items()}
        index = self._readable(columns, tolerance)
        self._note_pictures(columns, tolerance)
        share = "float32" if self.mix is None else numpy_dtype(self._inputs[self.mix.share].dtype).name
        return Dataset(
            self.section, columns, whole, index, self.seed, self.training, tolerance, fitted, self.mix, share,
            tools.tokenizer_used,
        )  # fmt: skip

    @property
    def _inputs(self) -> dict[str, Tensor]:
        """The inputs by name."""
        return {tensor.name: tensor for tensor in self.interface.train_inputs}

    @property
    def _tensors(self) -> dict[str, Tensor]:
        """Those that data is read for: what mixes rows makes two of them itself."""
        made = () if self.mix is None else (self.mix.other, self.mix.share)
        return {name: tensor for name, tensor in self._inputs.items() if name not in made}

    def _check_names(self) -> None:
        """DataError R102 if a name is no input, or an input has no source."""
        inputs = self._inputs
        refuse_unknown(self.sources, inputs, self.section)
        refuse_unknown(self.augment or {}, inputs, "data.augment")
        if self.mix is not None:
            check_mix(self.mix, self.interface, self.sources)

    def _wanted(self, tensor: Tensor) -> Wanted:
        """What is read for an input. DataError R102 or R104 if it has no source, no rows to divide or to augment."""
        name, inputs, batch = tensor.name, self._inputs, self.interface.batch
        if name not in self.sources:
            help = line_for(tensor, [(inputs[other], source) for other, source in self.sources.items()], self.section)
            raise DataError("R102", f"there is no data for the input `{name}`: {tensor}", place=self.section, help=help)
        rows, field = self.interface.rows_of(tensor), f"{self.section}.{name}"
        if not rows and any(batch in dims_of(size) for size in tensor.shape):
            cause = f"the input `{name}`: {tensor} cannot be divided into batches along {batch}"
            raise DataError("R102", cause, place=field, help=f"make {batch} its first axis")
        shape = tuple(size_value(size, self.sizes) for size in tensor.shape)
        steps, mask = steps_of(self.augment or {}, name)
        if not rows and steps:
            cause, place = f"the input `{name}` has no rows to augment", f"data.augment.{name}"
            raise DataError("R104", cause, place=place, help="remove it from data.augment")
        if not self.training:
            steps = tuple(step for step in steps if step.always)
        if tensor.range is not None and all(name != each.name for each in self.interface.inputs):
            # The classes of a target have no values between them.
            steps, mask = steps if mask else nearest_of(steps), True
        return Wanted(
            field,
            tuple(files(self.sources[name], self.notice, field)),
            tensor,
            shape[1:] if rows else shape,
            self.check_finite,
            steps,
            replace(self.images, mask=mask),
            mix=self.mix if self.mix is not None and name == self.mix.image else None,
            tokenizer=self.tokenizer,
        )

    def _fitted(self, wanted: Mapping[str, Wanted], tolerance: Tolerance, kept_open: list[Table]) -> Fitted:
        """What an earlier training fitted, or what this one fits to the rows that it trains on."""
        if self.fitted is not None:
            return self.fitted

        def training_rows(opened: Mapping[str, TableInput | Column]) -> NDArray[np.int64]:
            index = self._readable(opened, tolerance)
            return index if self.split is None else parted_rows(index, self.split, self.seed)[0]

        def note(bad: BadSample) -> None:
            tolerance.note(bad, self.section)

        fitted = fit_inputs(wanted, self.described or {}, training_rows, note, kept_open)
        if self.training:
            require_classes(wanted, fitted, self.notice)
        return fitted

    def _readable(self, columns: Mapping[str, TableInput | Column], tolerance: Tolerance) -> NDArray[np.int64]:
        """The rows except those found bad on opening; those that do not fit what was fitted only count."""
        found = np.ones(self._rows(columns), bool)
        for column in columns.values():
            for row, (place, why) in sorted(column.bad.items()):
                tolerance.note(BadSample(row, place, why), self.section)
                found[row] = False
        for column in columns.values():
            for row, (place, why) in sorted(column.late.items()):
                tolerance.note(BadSample(row, place, why), self.section)
        if not found.any():
            raise DataError("R106", "no row can be read", place=self.section, help="name a file with data")
        return np.flatnonzero(found)

    def _rows(self, columns: Mapping[str, TableInput | Column]) -> int:
        """The number of rows of every column. DataError R102 or R106 if they differ, or there are none."""
        counts = {name: column.rows.count for name, column in columns.items()}
        # Windows of one text with different shifts: as many as every column has.
        for name, column in columns.items():
            if format_of(column.wanted.files[0]).windows:
                same = [n for n, c in columns.items() if c.wanted.files[0].path == column.wanted.files[0].path]
                counts[name] = min(columns[n].rows.count for n in same)
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{self.sources[name].name} has {count}" for name, count in counts.items())
            help = "row i of each file must belong to the same sample"
            raise DataError("R102", f"the numbers of rows differ: {listed}", place=self.section, help=help)
        rows = next(iter(counts.values()), 1)
        if rows == 0:
            raise DataError("R106", "there are no rows", place=self.section, help="name a file with data")
        return rows

    def _note_pictures(self, columns: Mapping[str, Column], tolerance: Tolerance) -> None:
        """Counts the pictures that cannot be read, before the first step: those whose files say so, and of the doubtful
        ones the first, which are decoded."""
        for name, column in columns.items():
            looked = faults_of(column.rows, self.notice, f"{self.section}.{name}")
            known = {at: (place, why) for at, (place, why) in looked.items() if why is not None}
            doubtful = sorted(looked.keys() - known.keys())
            for at, (place, why) in sorted({**known, **unreadable(column.wanted, doubtful[:_TRIED])}.items()):
                tolerance.note(BadSample(at, place or looked[at][0], why), self.section)


def refuse_unknown(names: Iterable[str], wanted: Mapping[str, Tensor], place: str) -> None:
    """DataError R102 for a name that is no input."""
    for name in names:
        if name not in wanted:
            close = nearest(name, wanted)
            help = f"did you mean `{close}`?" if close else f"its inputs are {', '.join(wanted)}"
            raise DataError("R102", f"the model has no input `{name}`", place=f"{place}.{name}", help=help)
