"""Predictions of a scaled target in the units of the data: the scaling of the training is undone.

A target is an input of the train section that reads columns of numbers or dates, of which at least one is scaled. Its
prediction is the result of the same shape. Files then have one column per value of the target, in f64 (a date has one
per part, such as `built.year`), and after it the result
itself, as ``NAME.scaled``. Example: the target `price` with `scale: standard`, predicted by the result `output`:

    row,price,output.scaled
    0,367388.1,-0.614
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.runtime.artifact.interface import Tensor
from dslc.runtime.data.columns.encoder import Unit
from dslc.runtime.predict.rows import Predicted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.interface import Interface
    from dslc.runtime.data.columns.fitted import Fitted


@dataclass(frozen=True)
class Units:
    """``interface``: its results are those of a file. ``decoded``: by result of the model, the name in the file and the
    column of each of its values. ``targets``: by result, the input that it predicts. ``unclear``: the scaled targets
    whose prediction is not known."""

    interface: Interface
    decoded: Mapping[str, tuple[tuple[str, Unit], ...]]
    targets: Mapping[str, str]
    unclear: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The results of a file that are in the units of the data."""
        return tuple(name for pairs in self.decoded.values() for name, _ in pairs)

    def parts(self, parts: Iterable[Predicted]) -> Iterator[Predicted]:
        """The same rows with the results of a file."""
        for part in parts:
            yield replace(part, results=self.results(part.results)) if self.decoded else part

    def results(self, results: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """By name: f64[rows] for each column of a target, and the model's results in their own dtypes."""
        found: dict[str, NDArray[Any]] = {}
        for name, values in results.items():
            pairs = self.decoded.get(name, ())
            columns = values.reshape(len(values), -1).astype(np.float64)[:, : len(pairs)] if pairs else values
            for at, (column, unit) in enumerate(pairs):
                found[column] = unit.decode(columns[:, at])
            found[scaled(name) if pairs else name] = values
        return {result.name: found[result.name] for result in self.interface.results}


def scaled(result: str) -> str:
    """The name of a result itself in a file that also has it in the units of the data."""
    return f"{result}.scaled"


def units_of(interface: Interface, fitted: Fitted, *, single: bool = False) -> Units:
    """What a file of predictions contains. ``single``: the file takes one array, which is the one in the data's units.

    A target belongs to the result that has its name or that of its column, else to the only float result of its shape
    if no other target may belong to it.
    """
    targets = _targets(interface, fitted)
    left = {r.name: r for r in interface.results if interface.rows_of(r) and r.dtype in _FLOATS}
    owners: dict[str, str] = {}
    for name, columns in targets.items():
        named = [n for n in (name, columns[0].column.name) if n in left and _fits(left[n], columns)]
        if named:
            owners[name] = named[0]
            del left[named[0]]
    open_targets = {name: columns for name, columns in targets.items() if name not in owners}
    possible = {name: [n for n, r in left.items() if _fits(r, columns)] for name, columns in open_targets.items()}
    for name, found in possible.items():
        if len(found) == 1 and sum(found[0] in others for others in possible.values()) == 1:
            owners[name] = found[0]
    decoded: dict[str, tuple[tuple[str, Unit], ...]] = {}
    taken = {scaled(r.name) if r.name in owners.values() else r.name for r in interface.results}
    results: list[Tensor] = []
    of_result = {result: name for name, result in owners.items()}
    for result in interface.results:
        if result.name not in of_result:
            results.append(result)
            continue
        columns = targets[of_result[result.name]]
        pairs = tuple((_free(column.name, taken), column) for column in columns)
        decoded[result.name] = pairs
        results += [Tensor(name, "f64", result.shape[:1]) for name, _ in pairs]
        if not single:
            results.append(replace(result, name=scaled(result.name)))
    unclear = tuple(name for name in targets if name not in owners)
    return Units(replace(interface, results=tuple(results)), decoded, of_result, unclear)


_FLOATS = ("f64", "f32", "f16", "bf16")


def _targets(interface: Interface, fitted: Fitted) -> dict[str, tuple[Unit, ...]]:
    """The values in a row of each input of the train section that reads columns which can be decoded, of which one is
    scaled."""
    found: dict[str, tuple[Unit, ...]] = {}
    for tensor in interface.train.inputs if interface.train is not None else ():
        units = fitted.units(fitted.inputs.get(tensor.name, ()))
        if any(unit.column.scaled for unit in units):
            found[tensor.name] = units
    return found


def _fits(result: Tensor, columns: tuple[Unit, ...]) -> bool:
    """True if a row of the result has as many values as one of the target."""
    sizes = [size for size in result.shape[1:] if isinstance(size, int)]
    return len(sizes) == len(result.shape) - 1 and prod(sizes) == len(columns)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
