"""A worker process, ``python -m dslc.runtime.data.worker MEMORY``: reads rows, augments them, writes them to memory.

The first line of stdin is the task as JSON: the columns, the seed, and the offsets of each slot and of its columns.
Each further line names a slot, the number of rows, and the epoch; the row numbers are in the slot. The answer is one
line of JSON on stdout: done, a bad sample, or an error. MEMORY is the file descriptor of the shared memory. The process
ends when its stdin is closed, so it never outlives its parent.

The first words of the memory report the progress: a counter that increases with each row, the slot, and the row. So the
parent can name the sample on which a decoder crashed or hung.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import signal
import sys
from collections.abc import Iterator
from math import prod
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DslcError
from dslc.base.failpoint import fail
from dslc.runtime.data.column import Column, open_column
from dslc.runtime.data.rows import BadSample
from dslc.runtime.data.wanted import Wanted

COUNTER, SLOT, ROW = range(3)  # words of the head, i64
IDLE = -1


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a dataset's package or a decoder prints must not mix with the answers
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # if nobody waits for the answer any more, end silently
    faulthandler.enable()  # a crashing decoder prints its location
    lines = _lines()
    first = next(lines, None)
    if first is None:
        return
    task = json.loads(first)
    memory = mmap.mmap(int(sys.argv[1]), task["bytes"])
    head = np.frombuffer(memory, np.int64, 8)
    head[SLOT] = IDLE
    try:
        columns = [open_column(Wanted.of_data(data), lambda text: None) for data in task["columns"]]
    except DslcError as error:
        _answer(answers, {"error": _error(error), "slot": IDLE})
        return
    for line in lines:
        asked = json.loads(line)
        slot = asked["slot"]
        head[ROW], head[SLOT] = IDLE, slot
        head[COUNTER] += 1
        answer: dict[str, Any] = {"slot": slot}
        try:
            _fill(task, columns, memory, head, asked)
        except BadSample as bad:
            answer["bad"] = [bad.row, bad.place, bad.why]
        except DslcError as error:
            answer["error"] = _error(error)
        head[SLOT] = IDLE
        _answer(answers, answer)


def _lines() -> Iterator[str]:
    """The whole lines of stdin: a parent that ends may leave a part of one."""
    while (line := sys.stdin.readline()).endswith("\n"):
        yield line


def _fill(
    task: dict[str, Any], columns: list[Column], memory: mmap.mmap, head: NDArray[np.int64], asked: dict[str, Any]
) -> None:
    start = task["slots"][asked["slot"]]
    rows = np.frombuffer(memory, np.int64, asked["count"], start).copy()
    for column, offset in zip(columns, task["offsets"]):
        decodes = column.decodes
        step = 1 if decodes else max(1, len(rows))
        for at in range(0, len(rows), step):
            head[ROW] = rows[at] if decodes else IDLE
            head[COUNTER] += 1
            fail("data.row")
            part = column.read(rows[at : at + step], task["seed"], asked["epoch"], training=task["training"])
            size = part.nbytes // len(part)
            target = np.frombuffer(memory, part.dtype, part.size, start + offset + at * size)
            target[...] = part.reshape(-1)
        shape = (len(rows), *column.wanted.shape)
        whole = np.frombuffer(memory, part.dtype, prod(shape), start + offset).reshape(shape)
        column.mix(whole, rows, task["seed"], asked["epoch"], training=task["training"])


def _error(error: DslcError) -> list[str | None]:
    return [error.code, error.message, error.place, error.help]


def _answer(to: TextIO, data: dict[str, Any]) -> None:
    print(json.dumps(data), file=to, flush=True)


if __name__ == "__main__":
    main()
