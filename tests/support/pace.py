"""Limits of processor time that hold on every machine, also on one that is half as fast or that others use too.

``within`` is for work that must not become slower: its time is a multiple of that of reference work of the same kind. A
slow or busy machine slows the start of a process, which reads files and touches new pages, more than arithmetic; so
the start of a command is compared with the start of another Python process. Both run in turns and the least time of
each counts: what else the machine does only adds to a time. ``kept`` is for a bound of work that runs once, such as a
refusal, and that may take a fraction of it.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
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


#: The seconds of both references below on a core of an AMD EPYC of 2023: limits of seconds are meant for that.
_OBJECTS: Final = 0.11
_IMPORTS: Final = 0.16
#: How much more than the references neighbours may slow a piece of work: they come and go.
_NEIGHBOURS: Final = 1.5


def seconds_of(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def objects() -> float:
    """The seconds of a fixed piece of work: Python objects, and fresh memory for them."""
    return seconds_of(lambda: sum(len(text) for _, text in {n: (n, str(n)) for n in range(250_000)}.values()))


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


def kept(spent: float, limit: float) -> bool:
    """Whether seconds of processor time keep to a limit meant for the reference machine. Where they do not at once, the
    pace of this machine, with what else runs on it, is measured by both references."""
    if spent <= limit:
        return True
    pace = max(1.0, objects() / _OBJECTS, started("-c", IMPORTS)() / _IMPORTS)
    print(f"{spent:.2f} s; {limit} s are allowed on a machine {pace:.1f} times as fast as this one is now")
    return spent <= limit * pace * _NEIGHBOURS
