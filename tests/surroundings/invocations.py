"""A call of each command that succeeds in a small project, and processes whose surroundings lack something."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: By the command's name: its arguments in the project that `dslc new spam` makes, whose model is built.
CALLS: Final[dict[str, tuple[str, ...]]] = {
    "new": ("new", "other"),
    "check": ("check", "spam.nn"),
    "fmt": ("fmt", "-"),
    "explain": ("explain", "E0301"),
    "ops": ("ops",),
    "build": ("build", "spam.nn"),
    "verify": ("verify", "build/spam"),
    "warm": ("warm", "build/spam"),
    "train": ("train", "--epochs", "1"),
    "eval": ("eval",),
    "predict": ("predict", "point.npy", "-o", "out.npz"),
    "bench": ("bench", "build/spam", "--seconds", "0.1"),
    "show": ("show", "spam.nn"),
    "why": ("why", "spam.nn:7", "spam.nn"),
    "info": ("info", "build/spam"),
    "mem": ("mem", "spam.nn"),
    "weights": ("weights", "list", "w.safetensors"),
    "cache": ("cache",),
    "doctor": ("doctor",),
    "config": ("config",),
}


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, a negative one for a signal, and what it said."""

    code: int
    out: bytes
    err: bytes
    seconds: float  # of processor time, its children's too
    peak: int  # bytes of memory it had at most, without its children's


def ran(
    args: Sequence[str],
    cwd: Path,
    *,
    before: Callable[[], None] | None = None,
    stdout: int = subprocess.PIPE,
    input: bytes = b"",
    timeout: float = 60.0,
) -> Ended:
    """`dslc ARGS` in a process of its own; ``before`` is called in it first. TimeoutExpired where it hangs."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "dslc", *args],
        cwd=cwd, stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE, preexec_fn=before,
    )  # fmt: skip
    try:
        out, err = process.communicate(input, timeout=timeout)
    finally:
        process.kill()
        process.wait()
    return Ended(process.returncode, out or b"", err, 0.0, 0)


def limited(kind: int, count: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (count, count))


def closed(*numbers: int) -> Callable[[], None]:
    def close() -> None:
        for number in numbers:
            with suppress(OSError):
                os.close(number)

    return close
