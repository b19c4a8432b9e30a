"""Records the artifacts that this user's own builds made. A command loads no other artifact without permission.

Code in a project's ``build/`` may have come with the project. Each build records the id of its artifact in the private
cache as an entry of kind ``made``. The cache's rules hold: only its owner can write there, and each entry is verified
when it is read. Without a cache nothing is recorded, no artifact is known, and every command builds. An artifact whose
entry the cache dropped (``dslc cache clear``, or for space) is built again.
"""

from __future__ import annotations

from typing import Final

from dslc.base.cache import Cache

_KIND: Final = "made"


def note(cache: Cache, id: str) -> None:
    """Record an artifact that was built here. ``id``: ``sha256:`` and the digest of its header."""
    if not known(cache, id):
        cache.note(_KIND, (id,))


def known(cache: Cache, id: str) -> bool:
    """True if one of this user's builds made the artifact with this id."""
    return cache.knows(_KIND, (id,))
