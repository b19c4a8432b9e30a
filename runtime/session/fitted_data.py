"""``Session.data``: raw values become inputs as in the training, and results become names and values again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from dslc.base.errors import InputError
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.artifact.interface import Interface, Tensor, size_value
from dslc.runtime.data.columns.category import Category
from dslc.runtime.data.columns.fitted import Fitted
from dslc.runtime.data.columns.number import Number
from dslc.runtime.data.columns.raw import Raw, raw_of
from dslc.runtime.data.columns.typed import in_column
from dslc.runtime.data.text.texts import TextEncoder, TextKey, problem, text_key
from dslc.runtime.data.text.tokenize import tokenizer_of
from dslc.runtime.nearest import nearest

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from dslc.runtime.data.columns.encoder import Unit


class FittedData:
    """What the training fitted to its data, taken from the notes of the weights."""

    def __init__(
        self,
        interface: Interface,
        fitted: Fitted,
        notes: Mapping[str, str] | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """``notes``: those of the weights, which know their tokenizer. ``sizes``: each dim's size, to which texts are
        cut or filled."""
        self._interface = interface
        self._fitted = fitted
        self._notes = notes or {}
        self._sizes = sizes or {}

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The columns of each input that read a table in the training."""
        return {name: _columns(keys) for name, keys in self._fitted.inputs.items()}

    def encode(
        self, table: Any, *, tokenizer: str | os.PathLike[str] | None = None, targets: bool = True
    ) -> dict[str, NDArray[Any]]:
        """The arrays of the inputs, as ``train_step(**arrays)`` takes them: [rows, ...] in each input's dtype.

        ``table``: the raw values of each column by name, all of one length: lists, arrays, or a pandas ``DataFrame``. A
        gap is None, NaN or "". Columns that no input reads are ignored. The inputs are those of the model that read
        tables, and those of the train section whose columns are all there; without ``targets`` those of the model
        alone, as ``predict(**arrays)`` takes them also where the table has the targets. ``tokenizer``: the file that
        ``data.tokenizer`` named in the training, for inputs that read texts as tokens. A text is cut or filled to the
        largest built size of its row.

        Raises InputError R105 for a column or tokenizer that is missing, and for a value that cannot be encoded, with
        its row; DataError R104 for another tokenizer than the training's, R101 for a file that is none.
        """
        there = [str(name) for name in table]
        inputs = [tensor for tensor in self._interface.train_inputs if tensor.name in self._fitted.inputs]
        if not inputs:
            _refuse("the weights know no columns of tables", "use weights of a training on a table, or pass arrays")
        needed = {tensor.name for tensor in self._interface.inputs}
        raws: dict[str, Raw] = {}
        found = {}
        for tensor in inputs:
            keys = self._fitted.inputs[tensor.name]
            names = _columns(keys)
            missing = [name for name in names if name not in there]
            if tensor.name not in needed and (missing or not targets):
                continue
            for name in names:
                if name in missing:
                    close = nearest(name, there)
                    help = f"is it `{close}`?" if close else f"`{tensor.name}` reads {', '.join(names)[:200]}"
                    _refuse(f"there is no column `{name[:60]}`", help)
                if name not in raws:
                    raws[name] = raw_of(table[name])
                if len(raws[name]) != len(next(iter(raws.values()))):
                    _refuse("the columns differ in length", "give a value, or None, for each row")
            text = text_key(keys[0])
            if text is not None:
                found[tensor.name] = self._texts(tensor, text, raws[names[0]], tokenizer)
            else:
                found[tensor.name] = self._encoded(tensor, [(name, raws[name]) for name in names])
        return found

    def _texts(self, tensor: Tensor, key: TextKey, raw: Raw, tokenizer: str | os.PathLike[str] | None) -> NDArray[Any]:
        """The texts of a column as rows of tokens, bytes or a mask."""
        file = None if tokenizer is None else Path(tokenizer)
        if key.tokens:
            if file is None:
                help = "give its file: encode(table, tokenizer='tokenizer.json')"
                _refuse(f"`{tensor.name}` reads tokens, which need the tokenizer of the training", help)
            tokenizer_of(file).require_trained(self._notes)
        texts = []
        for row, (value, gap) in enumerate(zip(raw.values.tolist(), raw.missing.tolist())):
            why = None if gap else problem(value)
            if why is not None:
                _refuse(f"row {row}: {why}", "fix the value, or leave the row out")
            texts.append("" if gap else value)
        length = size_value(tensor.shape[-1], self._sizes)
        return TextEncoder(key, length, file).encode(texts).astype(numpy_dtype(tensor.dtype))

    def _encoded(self, tensor: Tensor, columns: Sequence[tuple[str, Raw]]) -> NDArray[Any]:
        target = numpy_dtype(tensor.dtype)
        parts = []
        for name, raw in columns:
            encoder = self._fitted.columns.get(name) or Number.plain(name)
            found = encoder.encode(raw) if target.kind == "f" else encoder.encode_integers(raw)
            rounded = encoder.rounded(raw, found.values, target) if target.kind == "f" else {}
            for row, why in sorted({**rounded, **found.late, **found.errors}.items()):
                _refuse(f"row {row}: {in_column(name, why)}", "fix the value, or leave the row out")
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
        """The name of each index of a label: an input, or a column of categories. InputError R105 if the weights name
        no classes for it."""
        names = self._names(label)
        if names is None:
            inputs = [tensor.name for tensor in self._interface.train_inputs]
            known = [name for name in (*inputs, *self._fitted.columns) if self._names(name)]
            _refuse(
                f"the weights name no classes of `{label[:60]}`",
                f"they name those of {', '.join(known)[:200]}"
                if known
                else "train on a folder of images, or on categories",
            )
        return names

    def decode(self, name: str, values: Any) -> NDArray[Any]:
        """Values of an input, or of one column, as the data had them, in the same shape.

        Integers that are indices of a label become its class names: ``decode("label", scores.argmax(1))``. Values of an
        input that reads columns of numbers or dates lose their scaling, as f64: ``decode("price",
        session.predict(...))``; of several values in a row, they are the last axis. A name that an input and a column
        share is the input's. InputError R105 for an index out of range, another size of the last axis, and other names.
        """
        array = np.asarray(values)
        names = self._names(name)
        if names is not None:
            inside = array.dtype.kind in "iu" and not ((array < 0) | (array >= len(names))).any()
            if not inside:
                cause = f"the indices of `{name[:60]}` are integers from 0 to {len(names) - 1}"
                _refuse(cause, "give scores.argmax(1)")
            found: NDArray[Any] = np.array(names, object)[array]
            return found
        units = self._units(name)
        if not units:
            _refuse(f"`{name[:60]}` is neither a label nor columns of numbers and dates", self._decodable())
        numbers = array.astype(np.float64)
        if len(units) == 1:
            return units[0].decode(numbers)
        if not numbers.ndim or numbers.shape[-1] != len(units):
            listed = ", ".join(unit.name for unit in units)[:200]
            _refuse(f"a row of `{name[:60]}` has {len(units)} values, not {list(array.shape)[-1:]}", f"give {listed}")
        return np.stack([unit.decode(numbers[..., at]) for at, unit in enumerate(units)], -1)

    def _names(self, name: str) -> tuple[str, ...] | None:
        """The class names of an input or a column."""
        found = self._fitted.class_names(name)
        column = None if self._is_input(name) else self._fitted.columns.get(name)
        return column.class_names if isinstance(column, Category) and column.options["categories"] == "index" else found

    def _units(self, name: str) -> tuple[Unit, ...]:
        """The values of a row of an input or a column, if they can be decoded."""
        keys = self._fitted.inputs.get(name)
        if keys is None and any(name in others for others in self._fitted.inputs.values()):
            keys = (name,)
        return () if keys is None or text_key(keys[0]) is not None else self._fitted.units(keys)

    def _is_input(self, name: str) -> bool:
        return name in self._fitted.inputs or name in self._fitted.classes

    def _decodable(self) -> str:
        """The help that names what can be decoded."""
        names = dict.fromkeys((*self._fitted.classes, *self._fitted.inputs, *self._fitted.columns))
        known = [name for name in names if self._names(name) or self._units(name)]
        return f"these are: {', '.join(known)[:200]}" if known else "the weights know none"


def _columns(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The columns of an input's keys: that of ``tokens(review)`` is ``review``."""
    text = text_key(keys[0])
    return keys if text is None else (text.column,)


def data_of(interface: Interface, notes: Mapping[str, str], built: Iterable[Mapping[str, int]]) -> FittedData:
    """What the notes of weights say. ``built``: the sizes of each program; the largest of a dim counts. ArtifactError
    R306 for a malformed note."""
    largest: dict[str, int] = {}
    for sizes in built:
        largest |= {name: max(size, largest.get(name, 0)) for name, size in sizes.items()}
    return FittedData(interface, Fitted.of_notes(notes, "the weights") or Fitted(), notes, largest)


def _refuse(cause: str, help: str) -> NoReturn:
    raise InputError("R105", cause, place="data", help=help)
