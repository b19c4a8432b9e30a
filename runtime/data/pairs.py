"""Pairs in folders: `images/a.png` belongs to `masks/a.png`.

Two inputs from folders of images are paired by the names of the files without suffix. If the folders have no such name
in common, as `left/1.png` and `right/2.png`, their files are paired in the order of their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from dslc.base.errors import DataError
from dslc.runtime.data.formats.images import Folder, stems
from dslc.runtime.data.names import format_of
from dslc.runtime.data.wanted import Wanted


def paired(wanted: Mapping[str, Wanted]) -> dict[str, Wanted]:
    """The inputs; the files of a second folder of images come in the order of the first one.

    Raises DataError R102 if a file has no partner, or more than one."""
    found = dict(wanted)
    folders = [name for name, want in wanted.items() if all(_is_folder(want, at) for at in range(len(want.files)))]
    for name in folders[1:]:
        first, want = wanted[folders[0]], wanted[name]
        theirs, ours = _stems(first), _stems(want)
        if theirs == ours or not set(theirs) & set(ours):
            continue
        if Counter(theirs) != Counter(ours) or len(set(ours)) < len(ours) or len(first.files) + len(want.files) > 2:
            _refuse(first, want, theirs, ours)
        [other], [source] = first.files, want.files
        found[name] = replace(want, files=(replace(source, like=other.path),))
    return found


def _is_folder(want: Wanted, at: int) -> bool:
    format = format_of(want.files[at])
    return isinstance(format, Folder) and format.decodes(want.files[at])


def _stems(want: Wanted) -> list[str]:
    return [stem for source in want.files for stem in stems(source)]


def _refuse(first: Wanted, want: Wanted, theirs: Sequence[str], ours: Sequence[str]) -> NoReturn:
    here, there = Counter(ours), Counter(theirs)
    for one, other, at in ((there - here, first, want), (here - there, want, first)):
        if one:
            stem, total = min(one), sum(one.values())
            more = f", nor have {total - 1} others" if total > 1 else ""
            cause = f"`{stem[:100]}` of {other.files[0].name} has no partner in {at.files[0].name}{more}"
            help = "a file and its partner have the same name but for the suffix: images/a.jpg, masks/a.png"
            raise DataError("R102", cause, place=want.field, help=help)
    double = [stem for stem, count in here.items() if count > 1]
    if double:
        cause, help = f"{here[min(double)]} files are called `{min(double)[:100]}`", "give each a name of its own"
    else:
        cause, help = "the files of several folders come in different orders", "put them into one folder each"
    raise DataError("R102", cause, place=want.field, help=help)
