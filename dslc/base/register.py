"""Which artifacts this user's own builds made: the only ones that a command loads without being told to.

Code in a project's ``build/`` may have come with the project. Each build notes the id of its artifact in the private
cache, an entry of the kind ``made`` for each id, under the cache's rules: its owner alone can write there, and an entry
is verified when it is read. Without a cache nothing is noted, so nothing is known, and every command builds. What the
cache forgets, by ``dslc cache clear`` or for room, is built again.
"""

from __future__ import annotations

from typing import Final

from dslc.base.cache import Cache

_KIND: Final = "made"


def note(cache: Cache, id: str) -> None:
    """Note an artifact that was built here. ``id``: ``sha256:`` and the digest of its header."""
    if not known(cache, id):
        cache.note(_KIND, (id,))


def known(cache: Cache, id: str) -> bool:
    """Whether a build of this user's made the artifact of this id."""
    return cache.knows(_KIND, (id,))
