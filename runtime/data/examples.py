"""What to write for an input that has no data, for the help of an error: a source in the files that others have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dslc.runtime.artifact.interface import Tensor
from dslc.runtime.data.names import named
from dslc.runtime.data.source import Source
from dslc.runtime.data.tables.table_format import TableFormat
from dslc.runtime.data.text.texts import text_key


def example_source(name: str, given: Iterable[Source]) -> str:
    """A source as the user would write it, with KEY or COLUMN for what is unknown. ``given``: those of other inputs."""
    for source in given:
        file = file_of(source)
        format = named(file)
        if isinstance(format, TableFormat):
            return f"{file}:COLUMN"
        if format is not None and format.keyed and file.endswith(".npz"):
            return f"{file}:{name}"
    return "FILE.npz:KEY"


def line_for(tensor: Tensor, given: Sequence[tuple[Tensor, Source]], section: str) -> str:
    """The help for an input that a section of the configuration lacks: a line to add."""
    mask = _mask_source(tensor, given)
    source = mask or example_source(tensor.name, [source for _, source in given])
    why = ": 1 for each part of the text, 0 for the filling" if mask else ""
    return f"add `{tensor.name}: {source}` to `{section}`{why}"


def _mask_source(tensor: Tensor, given: Iterable[tuple[Tensor, Source]]) -> str | None:
    """The mask of the texts that another input reads, if this input may be one: it has the same shape, and it numbers
    nothing."""
    if tensor.range is not None:
        return None
    for other, source in given:
        text = text_key(source.key or "")
        if text is not None and not text.mask and other.shape == tensor.shape:
            return f"{file_of(source)}:{'tokens' if text.tokens else 'bytes'}.mask({text.column})"
    return None


def file_of(source: Source) -> str:
    """The file of a source, as the user wrote it."""
    return source.name.removesuffix(f":{source.key}") if source.key is not None else source.name
