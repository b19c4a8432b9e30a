"""An installed Python package with datasets: a module, and a folder of metadata as pip writes it."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np


def row(number: int) -> dict[str, Any]:
    """A row of most datasets of the package."""
    rng = np.random.default_rng(number)
    x, label = rng.standard_normal(4).astype("f4"), int(rng.integers(3))
    return {"x": x, "label": label, "text": f"row {number} ä" * (number % 5)}


_HEAD: Final = """
import os
import random
from typing import Any
import numpy as np

"""
MODULE: Final = (
    f"{_HEAD}{inspect.getsource(row)}"
    + '''

LABELS = ("cat", "dog", "owl")


class Table:
    def __init__(self, rows, make=row):
        self.rows, self.make = rows, make

    def __len__(self):
        return self.rows

    def __getitem__(self, number):
        if not 0 <= number < self.rows:
            raise IndexError(number)
        print("a row is read")
        return self.make(number)

    def class_names(self, field):
        return LABELS if field == "label" else None


class Stream:
    def __init__(self, table, log):
        self.table, self.log = table, log

    def __iter__(self):
        with open(os.environ[self.log], "a") as file:
            file.write("pass\\n")
        return (self.table[at] for at in range(len(self.table)))

    def class_names(self, field):
        return self.table.class_names(field)


def table(rows=50):
    print("the dataset is made")
    return Table(rows)


def stream(log, rows=50, version=1):
    return Stream(Table(rows), log)


def once(log, rows=50):
    return iter(Stream(Table(rows), log))


def noise(rows=50):
    return Table(rows, lambda number: {"x": [random.random() for _ in range(4)], "label": 0})


def holes(log=None, rows=50):
    """Every seventh row is broken, each in its own way."""
    kinds = [{"x": "text", "label": 0}, {"x": [1.0] * 3, "label": 0}, {"label": 0}, {"x": [None] * 4, "label": 1}, 5]

    def make(number):
        if number % 7 != 5:
            return row(number)
        if number == 5:
            raise RuntimeError("a broken row")
        return kinds[number // 7 % len(kinds)]

    found = Table(rows, make)
    return found if log is None else Stream(found, log)


def tuples(rows=20):
    return [(float(number), number, (number, 2 * number)) for number in range(rows)]


def values(rows=20):
    return list(range(rows))


def broken():
    raise RuntimeError("it does not work today")


def nothing():
    return None


def read(path, log):
    return stream(log)


read.fingerprint = lambda path, log: os.environ.get("SPAM_MARK")


def breaks(rows=20):
    def make(number):
        if number == 13:
            raise RuntimeError("the connection is lost")
        return row(number)

    return (make(number) for number in range(rows))


def pictures(folder, rows=6):
    from PIL import Image

    found = []
    for number in range(rows):
        pixels = np.random.default_rng(number).integers(0, 256, (10 + number, 12, 3), np.uint8)
        image = Image.fromarray(pixels)
        image.save(f"{folder}/{number}.png")
        with open(f"{folder}/{number}.png", "rb") as file:
            data = file.read()
        coded = ({"bytes": None, "path": f"{folder}/{number}.png"}, {"bytes": data, "path": None}, data)[number % 3]
        found.append({"decoded": image, "coded": coded})
    return found


not_a_function = 3
'''
)

POINTS: Final = (
    "table", "read", "stream", "once", "noise", "holes", "tuples", "values", "broken", "nothing", "breaks", "pictures",
    "not_a_function",
)  # fmt: skip


def install(
    folder: Path,
    name: str = "spam_data",
    module: str = MODULE,
    points: Mapping[str, str] | None = None,
    version: str = "1.0",
    group: str = "dslc.data",
) -> Path:
    """Write the package into a folder of the import path. ``points``: the value of each entry point."""
    points = {f"spam-{point}": f"{name}:{point}" for point in POINTS} if points is None else points
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(module)
    # Python takes bytecode for that of a text of the same length that was written in the same second.
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    for old in folder.glob(f"{name}-*.dist-info"):
        for file in old.iterdir():
            file.unlink()
        old.rmdir()
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    listed = "".join(f"{key} = {value}\n" for key, value in points.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{listed}")
    return folder
