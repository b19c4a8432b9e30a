"""What a run fits to its training rows before the first step, and what it takes from weights instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.runtime.data.column import Column, open_column
from dslc.runtime.data.columns.encoder import Encoder, kinds
from dslc.runtime.data.columns.fitted import Fitted
from dslc.runtime.data.columns.fitting import TableInput, columns_of, reads_table, require_one_file, require_used
from dslc.runtime.data.names import format_of
from dslc.runtime.data.rows import BadSample

if TYPE_CHECKING:
    from dslc.runtime.data.tables.table import Table
    from dslc.runtime.data.wanted import Wanted

#: The options of each described column: its kind and its options, as the configuration gives them.
Described = Mapping[str, tuple[str, Mapping[str, Any]]]


def encoders_of(described: Described) -> dict[str, Encoder]:
    """Encoders without facts."""
    return {name: kinds()[kind](name, options) for name, (kind, options) in described.items()}


def fit_inputs(
    wanted: Mapping[str, Wanted],
    described: Described,
    training_rows: Callable[[Mapping[str, TableInput | Column]], NDArray[np.int64]],
    note: Callable[[BadSample], None],
    kept_open: list[Table],
) -> Fitted:
    """Fit what the inputs need. ``training_rows`` gives the rows to fit to, once all inputs are open and their bad rows
    are known. While the caller holds ``kept_open``, the tables that were opened are opened again at little cost. Raises
    DataError R101 to R104 and R106."""
    encoders = encoders_of(described)
    inputs = {name: columns_of(want, kept_open) for name, want in wanted.items() if reads_table(want)}
    require_used(described, inputs)
    unfitted = {
        name: TableInput(wanted[name], encoders)
        for name, columns in inputs.items()
        if not encoders.keys().isdisjoint(columns)
    }
    require_one_file(unfitted.values())
    classes = {name: names for name, want in wanted.items() if (names := _class_names(want)) is not None}
    found: dict[str, Encoder] = {}
    if unfitted:
        opened: dict[str, TableInput | Column] = {}
        for name, want in wanted.items():
            if name in unfitted:
                unfitted[name].scan()
                opened[name] = unfitted[name]
            else:
                opened[name] = open_column(replace(want, fitted=Fitted({}, inputs, classes)), _silent)
        rows = training_rows(opened)
        for table in unfitted.values():
            found |= {e.name: e for e in table.fit(rows, note) if e.name in described}
    return Fitted(found, inputs, classes)


def _silent(text: str) -> None:
    """Says nothing: the column is opened again, and tells then what there is to tell."""


def require_classes(wanted: Mapping[str, Wanted], fitted: Fitted, notice: Callable[[str], None]) -> None:
    """Raise DataError R102 for a label of several classes whose training data name one class, R103 for more than the
    model has; tell fewer than the model's."""
    for name, want in wanted.items():
        names, most = fitted.class_names(name), 0 if want.tensor.range is None else want.tensor.range[1]
        if names is None or len(names) in (0, most) or most == 0:
            continue
        source = want.files[0]
        place = f"{want.field}: {source.path} ({source.name})"
        listed = ", ".join(f"`{each[:60]}`" for each in names[:8])
        if len(names) > most:
            cause = f"it names {len(names)} classes, more than the {most} of the model: {listed}"
            raise DataError("R103", cause, place=place, help="build the model for the classes that there are")
        cause = f"it names {len(names)} of the {most} classes of the model: {listed}"
        if len(names) > 1:
            notice(f"{want.field}: {source.name}: {cause}")
            continue
        help = "give data of every class, or build the model for the classes that there are"
        if source.path.is_dir():
            folder = f"{source.path.name}/{names[0][:60]}/"
            help = (
                f"put the images of each class into `folder/CLASS/`; if the classes are in {folder}, name that folder"
            )
        raise DataError("R102", cause, place=place, help=help)


def need(fitted: Fitted | None, wanted: Wanted) -> Wanted:
    """The input with its part of what was fitted."""
    name = wanted.tensor.name
    if fitted is None or (name not in fitted.inputs and name not in fitted.classes):
        return wanted
    columns = fitted.inputs.get(name, ())
    part = Fitted(
        {column: fitted.columns[column] for column in columns if column in fitted.columns},
        {name: columns} if columns else {},
        {name: fitted.classes[name]} if name in fitted.classes else {},
    )
    return replace(wanted, fitted=part)


def require_same(described: Described, fitted: Fitted | None, place: str) -> None:
    """Raise DataError R104 unless the weights were fitted with the configuration's options of each column."""
    for name in sorted({*described, *(() if fitted is None else fitted.columns)}):
        column = None if fitted is None else fitted.columns.get(name)
        if column is None:
            cause = f"the weights hold nothing that was fitted to the column `{name[:60]}`"
            help = "use the weights of a training with this configuration"
        elif name not in described:
            cause = f"the weights were trained with `data.columns.{name[:60]}`, which the configuration lacks"
            help = "write the configuration of that training"
        elif (column.kind, column.options) != (described[name][0], described[name][1]):
            cause = f"the weights were trained with other options of the column `{name[:60]}`"
            help = "write the configuration of that training, or train from scratch"
        else:
            continue
        raise DataError("R104", cause, place=place, help=help)


def _class_names(wanted: Wanted) -> tuple[str, ...] | None:
    """The sorted names of the classes in all folders of a label; None for other data."""
    names: set[str] = set()
    for source in wanted.files:
        found: Sequence[str] | None = format_of(source).class_names(source)
        if found is None:
            return None
        names |= set(found)
    return tuple(sorted(names)) or None
