"""The columns of a prediction: the row's name, the class of a classifier, the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.base.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.interface import Interface, Tensor
    from dslc.runtime.data.columns.fitted import Fitted
    from dslc.runtime.predict.rows import Predicted

_MOST_COLUMNS: Final = 100_000


@dataclass(frozen=True)
class Layout:
    """``results``: those with rows. ``row``: the column of the rows' names or numbers. ``classes``: by result of a
    classifier the column of its class, and the names of the classes, None for their numbers."""

    results: tuple[Tensor, ...]
    row: str
    classes: Mapping[str, tuple[str, tuple[str, ...] | None]]

    def classified(self, results: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, NDArray[Any]]]:
        """The column of the class of each classifier, with its values: the class with the largest result, the first of
        equal ones. A row with a NaN gets the NaN's class, as numpy does."""
        for name, (column, names) in self.classes.items():
            found = results[name].argmax(axis=1)
            yield column, found if names is None else np.asarray(names, np.str_)[found]

    def labels(self, result: str, count: int) -> list[str]:
        """The columns of the values of a result: named by class, else by number."""
        names = self.classes[result][1] if result in self.classes else None
        return [f"{result}.{each}" for each in (names or range(count))]


def class_names(interface: Interface, fitted: Fitted) -> dict[str, tuple[str, ...]]:
    """The class names of each label that the weights know."""
    labels = interface.train.inputs if interface.train is not None else ()
    found = {tensor.name: fitted.class_names(tensor.name) for tensor in labels}
    return {name: names for name, names in found.items() if names is not None}


def layout_of(interface: Interface, names: Mapping[str, Sequence[str]]) -> Layout:
    """The columns of a model's results. ``names``: the class names of each label, for those whose names are known.

    A result [B, K] is a classifier's if exactly one label of the train section has K classes. InputError R105 for a
    model without a result that has rows.
    """
    results = tuple(r for r in interface.results if interface.rows_of(r))
    if not results:
        listed = ", ".join(f"{r.name}: {r}" for r in interface.results)
        raise InputError("R105", f"no result has rows: {listed}", place="-o", help="write an .npz, which holds arrays")
    taken = {r.name for r in results}
    row = _free("row", taken)
    labels = [t for t in interface.train.inputs if t.range is not None] if interface.train is not None else []
    classes: dict[str, tuple[str, tuple[str, ...] | None]] = {}
    for result in results:
        fitting = [t for t in labels if t.range == (0, result.shape[1])] if len(result.shape) == 2 else []
        if len(fitting) == 1:
            known = names.get(fitting[0].name)
            complete = known is not None and len(known) == result.shape[1]
            classes[result.name] = "", tuple(known) if known is not None and complete else None
    for name, (_, known) in classes.items():
        classes[name] = _free("class" if len(classes) == 1 else f"{name}.class", taken), known
    return Layout(results, row, classes)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def flat_columns(layout: Layout, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, list[str]]:
    """The columns of each result in a table of numbers. ``shapes``: of one row. InputError R105 for a result whose rows
    are no vectors."""
    found: dict[str, list[str]] = {}
    for result in layout.results:
        shape = shapes[result.name]
        if len(shape) > 1 or (shape and shape[0] > _MOST_COLUMNS):
            cause = f"a row of `{result.name}` is {list(shape)}, which is no row of a table"
            raise InputError("R105", cause, place="-o", help="write an .npz or .jsonl file")
        found[result.name] = layout.labels(result.name, shape[0]) if shape else [result.name]
    return found


def row_values(part: Predicted, start: int, count: int) -> list[Any]:
    """The names of a batch's rows, else their numbers from 0."""
    return list(part.names) if part.names is not None else list(range(start, start + count))
