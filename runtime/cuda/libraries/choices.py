"""Libraries' choices for an artifact on a GPU, stored in the private cache so that later loads need not ask again.

An entry belongs to one artifact, GPU, driver and library version, which all determine its name; a choice is the text of
an algorithm, and is looked up by its complete problem. ``dslc warm`` writes entries, loads read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dslc.base import canonical
from dslc.base.errors import ResourceError
from dslc.base.version import VERSION

if TYPE_CHECKING:
    from dslc.base.cache import Cache
    from dslc.runtime.cuda.device import Device

_FORM: Final = "texts"  # of the entries
_MOST_VALUES: Final = 4_000_000


class Prepared:
    """The choices of one library. ``cache``: the source of stored entries, None for none."""

    def __init__(self, cache: Cache | None, library: str, version: str, artifact: str, device: Device) -> None:
        machine = (device.name, device.target, str(device.multiprocessors), str(device.driver.version()))
        self._kind, self._fields = library, (VERSION, _FORM, artifact, *machine, version)
        payload = cache.get(self._kind, self._fields) if cache is not None else None
        self._choices: dict[str, str] = {} if payload is None else _read(payload)
        self.used = 0

    def get(self, problem: object) -> str | None:
        found = self._choices.get(repr(problem))
        self.used += found is not None
        return found

    def add(self, problem: object, algorithm: str) -> None:
        """Add an algorithm unless the problem already has a choice."""
        self._choices.setdefault(repr(problem), algorithm)

    def drop(self, problem: object) -> None:
        del self._choices[repr(problem)]
        self.used -= 1

    def keep(self, cache: Cache) -> int:
        """Write the entry; returns the number of its choices. ResourceError R402 if it cannot be written."""
        if cache.get(self._kind, self._fields) != (payload := self._payload()):
            cache.put(self._kind, self._fields, payload)
        if cache.get(self._kind, self._fields) != payload:
            raise ResourceError(
                "R402",
                "the libraries' choices cannot be stored",
                place=str(cache.folder or "the cache"),
                help="name a folder that only you can write to: DSLC_CACHE_DIR=/path",
            )
        return len(self._choices)

    def _payload(self) -> bytes:
        return canonical.dumps({"choices": [list(row) for row in sorted(self._choices.items())]})


def _read(payload: bytes) -> dict[str, str]:
    """Parses the bytes that ``keep`` wrote, as verified by the cache."""
    found = canonical.loads(payload, place="cache", offset=0, max_values=_MOST_VALUES)
    return {problem: algorithm for problem, algorithm in found["choices"]}
