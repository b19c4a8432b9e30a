"""Opens the data of a section, and checks it against the model's interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

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
    refuse_unknown(sources, wanted, section)
    refuse_unknown(augment or {}, wanted, "data.augment")
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
        return index if split is None else parted_rows(index, split, seed)[0]

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
    _note_pictures(columns, section, tolerance, notice)
    share = "float32" if mix is None else numpy_dtype(wanted[mix.share].dtype).name
    return Dataset(section, columns, whole, index, seed, training, tolerance, fitted, mix, share, tools.tokenizer_used)


def refuse_unknown(names: Iterable[str], wanted: Mapping[str, Tensor], place: str) -> None:
    """DataError R102 for a name that is no input."""
    for name in names:
        if name not in wanted:
            close = nearest(name, wanted)
            help = f"did you mean `{close}`?" if close else f"its inputs are {', '.join(wanted)}"
            raise DataError("R102", f"the model has no input `{name}`", place=f"{place}.{name}", help=help)


def _note_pictures(
    columns: Mapping[str, Column], section: str, tolerance: Tolerance, notice: Callable[[str], None]
) -> None:
    """Count the pictures that cannot be read, before the first step: those whose files say so, and of the doubtful ones
    the first, which are decoded."""
    for name, column in columns.items():
        looked = faults_of(column.rows, notice, f"{section}.{name}")
        known = {at: (place, why) for at, (place, why) in looked.items() if why is not None}
        doubtful = sorted(looked.keys() - known.keys())
        for at, (place, why) in sorted({**known, **unreadable(column.wanted, doubtful[:_TRIED])}.items()):
            tolerance.note(BadSample(at, place or looked[at][0], why), section)


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
