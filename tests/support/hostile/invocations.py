"""A call of each command that succeeds in a small project, and processes whose surroundings lack something."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
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
    "tune": ("tune", "spam.nn", "--budget", "1s"),
    "lock": ("lock",),
    "train": ("train", "--epochs", "1"),
    "runs": ("runs",),
    "sweep": ("sweep", "--space", "train.lr=[0.1]", "--epochs", "1"),
    "publish": ("publish", "spam"),
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
    seconds: float  # of processor time
    peak: int  # bytes of memory that it had at most; 0 where that was not measured


#: The kernel counts what the process that started this one had as this one's, too, but for VmHWM.
_MEASURED: Final = """
import os
try:
    from dslc.cli import main
    main()
finally:
    with open("/proc/self/status") as file:
        os.write(2, next(line for line in file if line.startswith("VmHWM:")).encode())
"""


def ran(
    args: Sequence[str],
    cwd: Path,
    *,
    before: Callable[[], None] | None = None,
    stdout: int | None = None,
    input: bytes = b"",
    timeout: float = 60.0,
    measured: bool = False,
) -> Ended:
    """`dslc ARGS` in a process of its own; ``before`` is called in it first; ``measured``: with its memory.

    TimeoutExpired where it hangs."""
    command = [sys.executable, "-P", *(("-c", _MEASURED) if measured else ("-m", "dslc")), *args]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as given:
        given.write(input)
        given.seek(0)
        process = subprocess.Popen(command, cwd=cwd, stdin=given, stdout=out if stdout is None else stdout, stderr=err,
                                   preexec_fn=before)  # fmt: skip
        end = time.monotonic() + timeout
        while True:
            number, status, used = os.wait4(process.pid, os.WNOHANG)
            if number:
                break
            if time.monotonic() > end:
                process.kill()
                process.wait()
                raise subprocess.TimeoutExpired(command, timeout)
            time.sleep(0.005)
        process.returncode = os.waitstatus_to_exitcode(status)  # it has been waited for
        out.seek(0)
        err.seek(0)
        said, _, peak = err.read().rpartition(b"VmHWM:") if measured else (err.read(), b"", b"0")
        seconds = used.ru_utime + used.ru_stime
        return Ended(process.returncode, out.read(), said, seconds, int(peak.split()[0]) << 10)


def limited(kind: int, count: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (count, count))


def closed(*numbers: int) -> Callable[[], None]:
    def close() -> None:
        for number in numbers:
            with suppress(OSError):
                os.close(number)

    return close


def without_folder() -> None:
    """The working folder is gone."""
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)


def stderr_full() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 2)


def stdout_full() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


_MIB: Final = 1 << 20
#: What a process may lack. Python itself needs about 16 MiB of address space and five open files to begin.
LACKS: Final[dict[str, Callable[[], None]]] = {
    "room on stdout": stdout_full,
    "room on stderr": stderr_full,
    "stdin": closed(0),
    "stdout": closed(1),
    "stderr": closed(2),
    "all three": closed(0, 1, 2),
    "a working folder": without_folder,
    "files of more than 100 bytes": limited(resource.RLIMIT_FSIZE, 100),
    **{f"more than {count} open files": limited(resource.RLIMIT_NOFILE, count) for count in (5, 6, 8, 12)},
    **{
        f"more than {size} MiB of address space": limited(resource.RLIMIT_AS, size * _MIB)
        for size in (30, 50, 80, 100, 150, 200, 250)
    },
}
