"""Windows of several files: window i of all files together is the same place of the same text for every input.

An input that reads the tokens one ahead has a window less in some files. If only one file is read, the last window of
the other inputs is left out. For several files, the missing window would shift the rows of every later file, so each
file is cut for each input alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dslc.base.errors import DataError
from dslc.runtime.data.formats.tokens import Tokens, tokens
from dslc.runtime.data.names import format_of
from dslc.runtime.data.wanted import Wanted


def aligned(wanted: Mapping[str, Wanted]) -> dict[str, Wanted]:
    """The inputs, with keys that leave out the tokens at the end of each file that another input does not reach.

    Raises DataError R102 for inputs that read the same files with different distances between windows.
    """
    found = dict(wanted)
    keys = {name: _key(each) for name, each in wanted.items() if len(each.files) > 1 and len(each.shape) == 1}
    windows = {name: key for name, key in keys.items() if key is not None}
    for name, key in windows.items():
        paths = [source.path for source in wanted[name].files]
        same = {n: k for n, k in windows.items() if [source.path for source in wanted[n].files] == paths}
        strides = {wanted[n].shape[0] if k.stride is None else k.stride for n, k in same.items()}
        if len(strides) > 1:
            cause = f"{', '.join(same)} read windows of the same files at different distances: {sorted(strides)}"
            help = "give each the same `/STRIDE`"
            raise DataError("R102", cause, place=wanted[name].field, help=help)
        left = max(k.shift + wanted[n].shape[0] + k.left for n, k in same.items()) - key.shift - wanted[name].shape[0]
        files = tuple(replace(source, key=str(replace(key, left=left))) for source in wanted[name].files)
        found[name] = replace(wanted[name], files=files)
    return found


def _key(wanted: Wanted) -> Tokens | None:
    """The key of an input's windows; None for other data."""
    source = wanted.files[0]
    return tokens(source.key or "") if format_of(source).windows else None
