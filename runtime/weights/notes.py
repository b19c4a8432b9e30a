"""Notes: texts that a weights file or a checkpoint carries next to its tensors, such as what was fitted on the data.

A note's name begins with ``dslc.``. It is an entry of the file's metadata, with its SHA-256 as the entry
``NAME.sha256``, so that damage is found. The position of a run and the step of a session are stored in the same way but
are no notes: they belong to one checkpoint, not to the weights.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from dslc.base.errors import InputError
from dslc.runtime.weights.safetensors_header import damaged

_PREFIX: Final = "dslc."
_DIGEST: Final = ".sha256"
_NAME = re.compile(r"dslc(?:\.[a-z][a-z0-9_-]{0,62}){1,4}\Z")
_NOT_NOTES: Final = ("dslc.position", "dslc.session")
#: The note of a run's weights: run, step and metric. It tells of one file's tensors, so it is not read with the others:
#: weights that are changed and saved again must not carry it.
RUN: Final = "dslc.run"
_LONGEST: Final = 4 << 20  # characters of all notes of a file; a header has at most 16 MiB
_MOST: Final = 64


def checked(notes: Mapping[str, str], place: str) -> dict[str, str]:
    """The notes, if they can be written. InputError R105 for a bad name, a value that is not text, or too much text."""
    for name, text in notes.items():
        if not isinstance(name, str) or not _NAME.match(name) or name.endswith(_DIGEST) or name in _NOT_NOTES:
            cause = f"{str(name)[:80]!a} cannot be the name of a note"
            raise InputError("R105", cause, place=place, help="write `dslc.` and lower-case words with dots between")
        if not isinstance(text, str) or any("\ud800" <= c <= "\udfff" for c in text):
            raise InputError("R105", f"the note `{name}` is not text", place=place, help="give a string")
    if len(notes) > _MOST or sum(map(len, notes.values())) > _LONGEST:
        cause = f"more than {_MOST} notes, or more than {_LONGEST} characters"
        raise InputError("R105", cause, place=place, help="store large data in a file of its own")
    return dict(notes)


def to_metadata(notes: Mapping[str, str]) -> dict[str, str]:
    """The entries of a file's metadata for these notes."""
    return {**notes, **{name + _DIGEST: _digest(text) for name, text in notes.items()}}


def of_metadata(metadata: Mapping[str, str], place: str) -> dict[str, str]:
    """The notes of a file with this metadata. ArtifactError R306 for one that does not match its digest."""
    found = {
        name: text
        for name, text in sorted(metadata.items())
        if name.startswith(_PREFIX) and not name.endswith(_DIGEST) and name not in (*_NOT_NOTES, RUN)
    }
    for name, text in found.items():
        if metadata.get(name + _DIGEST) != _digest(text):
            damaged(place, f"its note {name[:80]!a} does not match its digest")
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
