"""Detects forked child processes: the parent's threads, locks and device handles do not work there."""

from __future__ import annotations

import os

from dslc.base.errors import ForkError


class _Generation:
    """The number of forks between the process that imported dslc's runtime and this one, and of those of this one."""

    count = 0
    children = 0

    @classmethod
    def step(cls) -> None:
        cls.count += 1

    @classmethod
    def born(cls) -> None:
        cls.children += 1


os.register_at_fork(after_in_parent=_Generation.born, after_in_child=_Generation.step)


def generation() -> int:
    """A number that differs between a process and its forked children."""
    return _Generation.count


def children() -> int:
    """How often this process was forked."""
    return _Generation.children


def is_child(born: int) -> bool:
    """True if this process was forked after ``born = generation()`` was taken."""
    return born != _Generation.count


def refuse_child(born: int, what: str) -> None:
    """Raise ForkError (R204) in a process forked after ``born`` was taken."""
    if is_child(born):
        raise ForkError(
            "R204",
            f"{what} was loaded before the process was forked",
            help='load it in the child, or start workers with multiprocessing.get_context("spawn")',
        )
