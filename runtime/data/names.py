"""Names of data in a configuration: ``digits.npz:train_x``, ``images.npy``, ``train-images-idx3-ubyte.gz``, and so on.

A name is a path, followed by ``:KEY`` if the format selects data inside the file.
"""

from __future__ import annotations

from typing import Final

from dslc.base.folders import import_modules
from dslc.base.words import NO_STDIN, STDIN
from dslc.runtime.data.format import Format, registered
from dslc.runtime.data.source import Source

import_modules("dslc.runtime.data.formats")
FORMATS: Final = registered()
HELP: Final = "write " + ", ".join(f"{each.usage}" for each in FORMATS[:-1]) + f" or {FORMATS[-1].usage}"


#: Suffixes of files that are not read -> what to do with them.
_CONVERT: Final = {
    (".gz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".tgz"): "unpack it: of compressed files, tables are read "
    "as .csv, .tsv or .jsonl with .gz, .bz2 or .xz, and idx files with .gz",
    (".xlsx", ".xls", ".ods", ".db", ".sqlite", ".sav", ".dta"): "write its table as a .csv or .parquet file",
    (".json",): "write one object per line into a .jsonl file: json.dumps(row) for each row",
    (".h5", ".hdf5", ".mat", ".pkl", ".pickle", ".joblib", ".pt", ".pth"): "write its arrays into an .npz file, "
    "by numpy.savez",
    (".pq", ".parq"): "call it .parquet",
    (".data", ".dat", ".psv", ".tab"): "if it is a table with commas, semicolons or tabs, call it .csv or .tsv",
    (".md", ".log", ".text", ".rst", ".tex", ".html"): "call it .txt to read it as a text",
    (".wav", ".flac", ".mp3", ".ogg", ".m4a", ".aac"): "write its samples into an .npy file of [rows, samples], "
    "by numpy.save",
    (".mp4", ".avi", ".mov", ".mkv", ".webm"): "write its frames as images in folders, or into an .npy file",
    (".tfrecord", ".tfrecords", ".lmdb", ".mdb", ".zarr", ".orc", ".avro", ".safetensors"): "write its arrays into an "
    ".npz file, its table as .parquet, or its samples as tar shards",
    (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff"): "name the folder of the images: "
    "`folder/:image`",
}


def help_for(text: str) -> str:
    """What to write instead of a text that ``split`` refuses: in its file's format, else in any."""
    path, _, key = text.rpartition(":")
    if text in STDIN or path in STDIN:
        return NO_STDIN
    found = _matching(text) or _matching(path)
    if found is None and path and "." not in path.rpartition("/")[2] and _matching(path + "/") is not None:
        return f"the name of a folder ends with a slash: `{path}/:{key}`"
    if found is not None:
        return f"write {found.usage}"
    ends = (text.lower(), path.lower())
    return next((help for suffixes, help in _CONVERT.items() if any(end.endswith(suffixes) for end in ends)), HELP)


def split(text: str) -> tuple[str, str | None]:
    """The path and the key in a source's text. ValueError with the reason if no format reads it."""
    for each in FORMATS:
        if (parts := each.divided(text)) is not None:
            return parts
    path, colon, key = text.rpartition(":")
    whole = _matching(text)
    if not colon or (whole is not None and not whole.keyed and _matching(path) is None):
        path, colon, key = text, "", ""  # a colon in the name of a file without keys
    found = _matching(path)
    while found is None and ":" in path:  # a colon in the name of a column
        path, _, begin = path.rpartition(":")
        key, found = f"{begin}:{key}", _matching(path)
    if found is None:
        raise ValueError("no format has such a name")
    if found.keyed:
        found.check_key(key)
        return path, key
    if colon:
        raise ValueError("such a file has no names inside")
    return path, None


def format_of(source: Source) -> Format:
    """The format of a source whose name ``split`` has accepted."""
    name = source.path.name
    found = _matching(name) or _matching(name + "/")  # a Path has no slash at its end
    assert found is not None, f"no format reads {source.name}"
    return found


def named(path: str) -> Format | None:
    """The format of a path without a key; None if no format reads it."""
    return _matching(path)


def _matching(path: str) -> Format | None:
    return next((each for each in FORMATS if each.matches(path)), None)
