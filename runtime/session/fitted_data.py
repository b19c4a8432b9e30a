"""``Session.data``: raw values become inputs as in the training, and results become names and values again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from dslc.base.errors import InputError
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.artifact.interface import Interface, Tensor
from dslc.runtime.data.columns.fitted import Fitted
from dslc.runtime.data.columns.number import Number
from dslc.runtime.data.columns.raw import Raw, raw_of
from dslc.runtime.nearest import nearest

if TYPE_CHECKING:
    from numpy.typing import NDArray


class FittedData:
    """What the training fitted to its data, taken from the notes of the weights."""

    def __init__(self, interface: Interface, fitted: Fitted) -> None:
        self._interface = interface
        self._fitted = fitted

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The columns of each input that read a table in the training."""
        return dict(self._fitted.inputs)

    def encode(self, table: Any) -> dict[str, NDArray[Any]]:
        """The arrays of the inputs, as ``predict(**arrays)`` takes them: [rows, ...] in each input's dtype.

        ``table``: the raw values of each column by name, all of one length: lists, arrays, or a pandas ``DataFrame``. A
        gap is None, NaN or "". Columns that no input reads are ignored. The inputs are those of the model that read
        tables, and those of the train section whose columns are all there. Raises InputError R105 for a column that is
        missing, and for a value that cannot be encoded, with its row.
        """
        there = [str(name) for name in table]
        inputs = [tensor for tensor in self._interface.train_inputs if tensor.name in self._fitted.inputs]
        if not inputs:
            _refuse("the weights know no columns of tables", "use weights of a training on a table, or pass arrays")
        needed = {tensor.name for tensor in self._interface.inputs}
        raws: dict[str, Raw] = {}
        found = {}
        for tensor in inputs:
            names = self._fitted.inputs[tensor.name]
            missing = [name for name in names if name not in there]
            if missing and tensor.name not in needed:
                continue
            for name in names:
                if name in missing:
                    close = nearest(name, there)
                    help = f"is it `{close}`?" if close else f"`{tensor.name}` reads {', '.join(names)[:200]}"
                    _refuse(f"there is no column `{name[:60]}`", help)
                if name not in raws:
                    raws[name] = raw_of(table[name])
                if len(raws[name]) != len(raws[names[0]]):
                    _refuse("the columns differ in length", "give a value, or None, for each row")
            found[tensor.name] = self._encoded(tensor, [(name, raws[name]) for name in names])
        return found

    def _encoded(self, tensor: Tensor, columns: Sequence[tuple[str, Raw]]) -> NDArray[Any]:
        target = numpy_dtype(tensor.dtype)
        parts = []
        for name, raw in columns:
            encoder = self._fitted.columns.get(name) or Number.plain(name)
            found = encoder.encode(raw) if target.kind == "f" else encoder.encode_integers(raw)
            for row, why in sorted({**found.late, **found.errors}.items()):
                _refuse(f"row {row}: {why}", "fix the value, or leave the row out")
            parts.append(found.values)
        values = np.concatenate(parts, 1)
        with np.errstate(over="ignore"):
            array = values.astype(target)
        if target.kind == "f" and bool((np.isinf(array) & np.isfinite(values)).any()):
            _refuse(f"`{tensor.name}` has a value that is too large for {target.name}", "scale the data")
        rest = tensor.shape[1:]
        sizes = [size for size in rest if isinstance(size, int)]
        return array.reshape(len(values), *(sizes if len(sizes) == len(rest) else (array.shape[1],)))

    def class_names(self, label: str) -> tuple[str, ...]:
        """The name of each index of a label. InputError R105 if the weights name no classes for it."""
        names = self._fitted.class_names(label)
        if names is None:
            known = [tensor.name for tensor in self._interface.train_inputs if self._fitted.class_names(tensor.name)]
            _refuse(
                f"the weights name no classes of `{label[:60]}`",
                f"they name those of {', '.join(known)}" if known else "train on a folder of images, or on categories",
            )
        return names

    def decode(self, name: str, values: Any) -> NDArray[Any]:
        """Values of an input as the data had them, in the same shape.

        Integers that are indices of a label become its class names: ``decode("label", scores.argmax(1))``. Values of an
        input that reads columns of numbers or dates lose their scaling, as f64: ``decode("price",
        session.predict(...))``; of several values in a row, they are the last axis. InputError R105 for an index out of
        range, another size of the last axis, and other inputs.
        """
        array = np.asarray(values)
        names = self._fitted.class_names(name)
        if names is not None:
            inside = array.dtype.kind in "iu" and not ((array < 0) | (array >= len(names))).any()
            if not inside:
                cause = f"the indices of `{name[:60]}` are integers from 0 to {len(names) - 1}"
                _refuse(cause, "give scores.argmax(1)")
            found: NDArray[Any] = np.array(names, object)[array]
            return found
        columns = self._fitted.inputs.get(name, ())
        units = self._fitted.units(columns)
        if not units:
            _refuse(f"`{name[:60]}` is neither a label nor columns of numbers and dates", "decode those alone")
        numbers = array.astype(np.float64)
        if len(units) == 1:
            return units[0].decode(numbers)
        if not numbers.ndim or numbers.shape[-1] != len(units):
            listed = ", ".join(unit.name for unit in units)[:200]
            _refuse(f"a row of `{name[:60]}` has {len(units)} values, not {list(array.shape)[-1:]}", f"give {listed}")
        return np.stack([unit.decode(numbers[..., at]) for at, unit in enumerate(units)], -1)


def data_of(interface: Interface, notes: Mapping[str, str]) -> FittedData:
    """What the notes of weights say. ArtifactError R306 for a malformed note."""
    return FittedData(interface, Fitted.of_notes(notes, "the weights") or Fitted())


def _refuse(cause: str, help: str) -> NoReturn:
    raise InputError("R105", cause, place="data", help=help)
