"""Folders of images (``pictures.py`` decodes them): ``folder/:image`` and ``folder/:label``.

``folder/CLASS/FILE``: the label is the index of the class folder, in the order of names. A folder without sub-folders
has images but no labels. Files are sorted by path, or paired with those of another folder (``pairs.py``). A decoder is
C code on untrusted bytes, so it runs in a worker process.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.base.opened import Opened
from dslc.base.words import reason
from dslc.runtime.data.format import Format, misshaped, register, rows_of
from dslc.runtime.data.picture_headers import faults
from dslc.runtime.data.pictures import AS_STORED, LARGEST_FILE, Choose, PictureOptions, Pictures
from dslc.runtime.data.rows import ArrayRows, BadSample, ChooseOf, Rows
from dslc.runtime.data.source import Source

if TYPE_CHECKING:
    from dslc.runtime.data.tools import Tools
    from dslc.runtime.data.wanted import Wanted

SUFFIXES: Final = (".png", ".jpg", ".jpeg", ".bmp", ".webp")


def listed(source: Source) -> tuple[list[Path], NDArray[np.int64] | None, list[str]]:
    """Files, labels and class names of a folder. DataError R101 if it cannot be read, R106 if it is empty.

    The files are sorted, or have the order of ``source.like``, without labels then. R101 if they are no pairs."""
    classes, groups = _groups(source.path)
    files = [[path / name for name in inner if name.lower().endswith(SUFFIXES)] for path, inner in groups]
    found = [path for group in files for path in group]
    if source.like is not None:
        return _as_in(source, source.like, found), None, classes
    if not found:
        cause = f"it holds no image ({', '.join(SUFFIXES)})"
        raise DataError("R106", cause, place=str(source.path), help="put the images of a class into `folder/CLASS/`")
    labels = np.repeat(np.arange(len(files), dtype=np.int64), [len(group) for group in files]) if classes else None
    return found, labels, classes


def _groups(folder: Path) -> tuple[list[str], list[tuple[Path, list[str]]]]:
    """The class folders, and each folder of files with the sorted names in it. DataError R101."""
    try:
        names = _shown(folder)
        classes = [name for name in names if (folder / name).is_dir()]
        return classes, [(folder / name, _shown(folder / name)) for name in classes] or [(folder, names)]
    except (OSError, ValueError) as error:
        raise DataError(
            "R101", f"the folder cannot be read: {error}", place=str(folder), help="check the path and its permissions"
        ) from error


def _shown(folder: Path) -> list[str]:
    """The sorted names in a folder without hidden ones, such as ``._1.png``, and without ``__MACOSX``: macOS puts such
    companions of pictures, which are no pictures, into archives."""
    return sorted(name for name in os.listdir(folder) if not name.startswith(".") and name != "__MACOSX")


def overlooked(source: Source) -> list[str]:
    """A line each about what a user may miss: files that are not read, and class folders without an image."""
    classes, groups = _groups(source.path)
    left = [str(path.relative_to(source.path) / name) for path, inner in groups for name in inner if _unread(name)]
    if classes:  # then images next to the class folders belong to no class
        left += sorted({*_shown(source.path)} - {*classes})
    lines = []
    if left:
        count = "1 file is" if len(left) == 1 else f"{len(left)} files are"
        within = " in a class folder" if classes else ""
        lines.append(f"{count} not read, such as {left[0][:200]}; read are {', '.join(SUFFIXES)}{within}")
    empty = [path.name for path, inner in groups if classes and all(_unread(name) for name in inner)]
    lines += [f"the class folder `{name[:60]}` has no image" for name in empty]
    return lines


def _unread(name: str) -> bool:
    return not name.lower().endswith(SUFFIXES)


def stems(source: Source) -> list[str]:
    """The names of the files, with their folders, without suffixes."""
    return [str(path.relative_to(source.path).with_suffix("")) for path in listed(source)[0]]


def _as_in(source: Source, like: Path, files: Sequence[Path]) -> list[Path]:
    by_stem = {str(path.relative_to(source.path).with_suffix("")): path for path in files}
    wanted = stems(Source(like, source.key, like.name))
    if sorted(by_stem) != sorted(wanted) or len(by_stem) < len(files):
        cause = f"its files and those of {like.name} are no pairs any more"
        raise DataError("R101", cause, place=str(source.path), help="do not change them while they are read")
    return [by_stem[stem] for stem in wanted]


def labels_of(source: Source) -> NDArray[np.int64]:
    """The label of each file, i64[n]. DataError R102 for a folder without classes."""
    _, labels, _ = listed(source)
    if labels is None:
        raise DataError(
            "R102",
            "it has no class folders",
            place=str(source.path),
            help="put the images of a class into `folder/CLASS/`",
        )
    return labels


def renumbered(labels: NDArray[np.int64], source: Source, names: Sequence[str]) -> NDArray[np.int64]:
    """Labels of a folder as the indices of its class names among ``names``, those of the training. DataError R103 for a
    class that the training had not."""
    places = {name: at for at, name in enumerate(names)}
    classes = listed(source)[2]
    for name in classes:
        if name not in places:
            raise DataError(
                "R103",
                f"the class `{name[:60]}` is none of the {len(names)} classes of the training",
                place=str(source.path / name),
                help=f"they are {', '.join(names[:8])[:200]}",
            )
    return np.array([places[name] for name in classes], np.int64)[labels]


class ImageRows:
    """The decoded images of a folder, u8 in the layout of the input."""

    def __init__(self, source: Source, shape: tuple[int, ...], options: PictureOptions = AS_STORED) -> None:
        """``shape`` of one row: [C, H, W], [H, W, C] or [H, W]; C is 1, 3 or 4. DataError R102 for another."""
        try:
            self._pictures = Pictures(shape, options)
        except ValueError as error:
            help = "declare it as [B, 3, H, W] or [B, H, W, 3]; 1 and 4 channels work as well"
            raise DataError("R102", str(error), place=f"{source.path} ({source.name})", help=help) from error
        self._files, _, _ = listed(source)
        self.count = len(self._files)
        self.shape = shape
        self.dtype = np.dtype(np.uint8)
        self.in_memory = False

    def faults(self, notice: Callable[[str], None], what: str) -> Mapping[int, tuple[str, str | None]]:
        return {row: (str(self._files[row]), why) for row, why in faults(self._files, notice, what).items()}

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        return self.read_windows(rows, None)

    def read_windows(self, rows: NDArray[np.int64], choose: ChooseOf | None) -> NDArray[Any]:
        found = np.empty((len(rows), *self.shape), np.uint8)
        for at, row in enumerate(rows.tolist()):
            found[at] = self.image(row, None if choose is None else partial(choose, at))
        return found

    def image(self, row: int, choose: Choose | None = None) -> NDArray[np.uint8]:
        """One image, or the window of it that ``choose`` takes, in the input's size."""
        path = self._files[row]
        try:
            data = _bytes_of(path)
        except OSError as error:
            lost = isinstance(error, FileNotFoundError) and path.is_symlink()
            why = "the file to which it links does not exist" if lost else reason(error)
            raise BadSample(row, str(path), why) from error
        return self._pictures.read(data, row, str(path), choose)


def _bytes_of(path: Path) -> bytes:
    with Opened() as scope, scope as files:
        handle = files.open(path, os.O_RDONLY | os.O_NONBLOCK)
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("this is not a regular file")
        if status.st_size > LARGEST_FILE:
            raise OSError(f"it has {status.st_size} bytes, more than {LARGEST_FILE}")
        with open(handle, "rb", closefd=False) as file:
            return file.read(LARGEST_FILE)


class Folder(Format):
    """``pets/train/:image``, ``pets/train/:label``."""

    usage = "`folder/:image`"
    keyed = True

    def matches(self, path: str) -> bool:
        return path.endswith("/")

    def check_key(self, key: str) -> None:
        if key not in ("image", "label"):
            raise ValueError("a folder of images gives `image` and `label`")

    def open(self, source: Source, wanted: Wanted) -> Rows:
        if self.decodes(source):
            return ImageRows(source, wanted.shape, wanted.pictures)
        labels = labels_of(source)
        names = None if wanted.fitted is None else wanted.fitted.classes.get(wanted.tensor.name)
        if names is not None:
            labels = renumbered(labels, source, names)
        if wanted.shape:
            raise misshaped(source, wanted, labels.shape, rows_of(wanted))
        return ArrayRows(labels)

    def prepared(self, source: Source, wanted: Wanted, tools: Tools) -> Source:
        # an input that is no image is reported before a missing folder
        if self.decodes(source) and source.path.is_dir():
            for line in overlooked(source):
                tools.notice(f"{wanted.field}: {source.name}: {line}")
        return source

    def class_names(self, source: Source) -> Sequence[str] | None:
        return listed(source)[2] if source.key == "label" else None

    def decodes(self, source: Source) -> bool:
        return source.key == "image"

    def row_names(self, source: Source) -> list[str] | None:
        """The paths of the images in the folder, such as ``cat/1.png``."""
        paths, _, _ = listed(source)
        return [str(path.relative_to(source.path)) for path in paths]

    def require(self, source: Source) -> None:
        if not source.path.exists():
            super().require(source)


register(Folder())
