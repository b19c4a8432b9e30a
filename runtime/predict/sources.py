"""The data of each input of a prediction, from the command line and the configuration.

A text is ``[NAME=]SOURCE``. A source without a key, such as ``new.csv`` or ``photos/``, takes the key that
``dslc.yaml`` gives to the same input for the same format: ``new.csv`` then means ``new.csv:area,rooms``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from dslc.base.errors import DataError, InputError
from dslc.runtime.data.columns.fitted import Fitted
from dslc.runtime.data.examples import example_source, file_of
from dslc.runtime.data.names import format_of, help_for, named, split
from dslc.runtime.data.source import Source
from dslc.runtime.data.tables.table_format import TableFormat

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def sources(texts: Sequence[str], inputs: Sequence[str], known: Mapping[str, Source]) -> dict[str, Source]:
    """The source of each input. ``known``: the sources that the configuration gives to inputs; without ``texts``, they
    are the data.

    Raises InputError R105 for an unknown or missing input, DataError R101 for a text that names no data.
    """
    found = {} if texts else {name: known[name] for name in inputs if name in known}
    for text in texts:
        name, equals, rest = text.partition("=")
        if equals and _NAME.fullmatch(name):
            if name not in inputs or name in found:
                cause = f"`{name}` is given twice" if name in found else f"the model has no input `{name}`"
                raise InputError("R105", cause, place=text, help=f"its inputs are {', '.join(inputs)}")
            found[name] = _source(rest, known.get(name))
            continue
        if len(inputs) > 1 and _keyless(text) is None:
            _name_it(text, inputs)
        taking = inputs if len(inputs) == 1 else _of_this_format(text, inputs, known)
        if not taking:
            _name_it(text, inputs)
        for each in taking:
            if each in found:
                raise InputError("R105", f"`{each}` is given twice", place=text, help="name each input once")
            found[each] = _source(text, known.get(each))
    missing = [name for name in inputs if name not in found]
    if missing:
        example = _example(missing[0], found, known)
        example = f"{missing[0]}={example}" if len(inputs) > 1 else example
        help = f"add {example}" if texts else f"name it: dslc predict {example}; `data.eval` of dslc.yaml has none"
        raise InputError("R105", f"there is no data for {', '.join(missing)}", place="predict", help=help)
    return found


def of_weights(fitted: Fitted) -> dict[str, Source]:
    """The columns that the weights were trained with, as sources without a file; for a prediction without a
    configuration."""
    return {
        name: Source(Path("trained.csv"), ",".join(columns), "the weights") for name, columns in fitted.inputs.items()
    }


def naming(text: str, given: Mapping[str, Source]) -> Source:
    """The column that names the rows: ``new.csv:id``, or ``id`` of the table that an input reads. ``given``: the
    sources of the inputs. DataError R101 for neither."""
    if named(text) is None and named(text.rpartition(":")[0]) is None:
        for source in given.values():
            if isinstance(format_of(source), TableFormat):
                return Source(source.path, text, f"{file_of(source)}:{text}")
        cause = "this names no column of a table, and the data is none"
        raise DataError(
            "R101", cause, place=f"--rows {text}", help="write TABLE.csv:COLUMN; its row i names row i of the data"
        )
    return _source(text, None)


def _example(name: str, found: Mapping[str, Source], known: Mapping[str, Source]) -> str:
    """What to write for a missing input: the file of another one, if the configuration takes both from one format."""
    like = known.get(name)
    if like is None:
        return example_source(name, found.values())
    if like.key is not None:
        for source in found.values():
            if _same_format(file_of(source), like):
                return file_of(source)
    return like.name


def _name_it(text: str, inputs: Sequence[str]) -> NoReturn:
    help = f"write NAME=FILE, such as {inputs[0]}={text}"
    raise InputError("R105", f"the model has the inputs {', '.join(inputs)}", place=text, help=help)


def _source(text: str, like: Source | None) -> Source:
    path = _keyless(text)
    if path is not None and like is not None and like.key is not None and _same_format(path, like):
        return Source(Path(path), like.key, f"{text}:{like.key}")
    try:
        file, key = split(text)
    except ValueError as error:
        raise DataError("R101", f"this is not a source of data: {error}", place=text, help=help_for(text)) from error
    return Source(Path(file), key, text)


def _keyless(text: str) -> str | None:
    """The path if the text is one of a keyed format and lacks the key; a folder gets its slash."""
    path = f"{text}/" if not text.endswith("/") and Path(text).is_dir() else text
    format = named(path)
    return path if format is not None and format.keyed else None


def _same_format(path: str, like: Source) -> bool:
    """True if both are of one format; all formats of tables name their columns alike."""
    format, other = named(path), format_of(like)
    return format is other or (isinstance(format, TableFormat) and isinstance(other, TableFormat))


def _of_this_format(text: str, inputs: Iterable[str], known: Mapping[str, Source]) -> list[str]:
    path = _keyless(text)
    return [n for n in inputs if path is not None and n in known and known[n].key and _same_format(path, known[n])]
