"""Python's cyclic collector, off while many objects and little garbage are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Disables the cyclic collector: the check and the passes make many objects and little garbage. Collecting takes a
    third of a check and half of the passes, and the more, the larger the model is."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
