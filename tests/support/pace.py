"""Processor time as a multiple of reference work of the same kind, so that a limit holds on every machine.

A machine that is half as fast, or that others use too, slows the start of a process more than arithmetic: it reads
files and touches new pages. So the start of a command is compared with the start of another Python process. Both run in
turns and the least time of each counts: what else the machine does only adds to a time.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Final

#: A program that imports much of Python's library, in 0.16 s on a core of an AMD EPYC of 2023: pure Python, so that no
#: library's threads or versions count.
IMPORTS: Final = (
    "import asyncio, cProfile, csv, ctypes, difflib, doctest, email.mime.text, ftplib, html.parser, http.server, "
    "imaplib, logging.config, mailbox, multiprocessing.pool, optparse, pdb, pickletools, pydoc, smtplib, sqlite3, "
    "statistics, tarfile, unittest.mock, urllib.request, xml.dom.minidom, xmlrpc.server, zipfile"
)
#: Rounds that always run, and the most: more rounds only bring both times closer to the least ones.
_ROUNDS: Final = (3, 15)


def started(*arguments: str) -> Callable[[], float]:
    """A function that runs Python with these arguments, and gives its seconds of processor time."""

    def run() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return run


def within(work: Callable[[], float], reference: Callable[[], float], most: float) -> bool:
    """Whether ``work`` takes at most ``most`` times the seconds of ``reference``. Each function gives its seconds; the
    first run of each, which may write bytecode or fill caches, does not count."""
    work(), reference()
    works, references = [], []
    for n in range(_ROUNDS[1]):
        references.append(reference())
        works.append(work())
        if n + 1 >= _ROUNDS[0] and min(works) <= most * min(references):
            break
    ratio = min(works) / min(references)
    print(f"{min(works):.3f} s, {ratio:.2f} of the reference's {min(references):.3f} s; {most} are allowed")
    return ratio <= most
