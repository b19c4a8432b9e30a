"""``dslc cache``"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dslc.base.errors import ResourceError
from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.output import emit, size_text, table

if TYPE_CHECKING:
    from dslc.base.cache import Cache
    from dslc.base.cache_folder import Stored


@click.command(cls=Command)
@click.argument("action", metavar="[show|list|clear]", type=click.Choice(["show", "list", "clear"]), default="show")
def command(action: str) -> None:
    """Show or clear the cache of kernels, builds and encoded data.

    `list` prints every entry, the first one to be evicted at the top; `clear` removes all entries, which is always
    safe. The folder is $DSLC_CACHE_DIR, else $XDG_CACHE_HOME/dslc, else ~/.cache/dslc; DSLC_CACHE_DIR=off builds
    without a cache. DSLC_CACHE_MIB limits its size.
    """
    from dslc.base.cache import Cache
    from dslc.runtime.data.store import Store

    cache = Cache.open()
    store = Store.open(cache)
    try:
        if action == "clear":
            freed = cache.clear(), store.clear()
            count, size = (sum(each) for each in zip(*freed))
            emit({"folder": _folder(cache), "removed": count, "bytes": size}, f"removed {count} ({size_text(size)})")
            return
        entries = cache.entries()
        made = store.entries()
    except OSError as error:
        raise ResourceError(
            "R402",
            f"the cache cannot be {'cleared' if action == 'clear' else 'read'}: {error.strerror}",
            place=_folder(cache),
            help="check the folder's permissions, or name another with DSLC_CACHE_DIR",
        ) from error
    rows = _listed(entries) if action == "list" else _kinds(entries)
    head = ("entry", "size", "last run") if action == "list" else ("kind", "entries", "size")
    total = sum(entry.bytes for entry in entries)
    folder = one_line(_folder(cache) or "no cache")
    last = f"{folder}: {len(entries)} entries, {size_text(total)} of {size_text(cache.limit)}"
    data = _data(cache, entries, action)
    if made:
        size = sum(each.bytes for each in made)
        data["data"] = {"files": len(made), "bytes": size}
        last += f"; made from data: {len(made)} files, {size_text(size)}"
    emit(data, (table(head, rows, (1, 2)) + "\n" if rows else "") + last)


def _folder(cache: Cache) -> str | None:
    return None if cache.folder is None else str(cache.folder)


def _listed(entries: list[Stored]) -> list[tuple[str, str, str]]:
    return [(e.name, size_text(e.bytes), str(e.run) if e.run else "-") for e in entries]


def _kinds(entries: list[Stored]) -> list[tuple[str, str, str]]:
    kinds = sorted({e.kind for e in entries})
    sizes = {kind: [e.bytes for e in entries if e.kind == kind] for kind in kinds}
    return [(kind, str(len(sizes[kind])), size_text(sum(sizes[kind]))) for kind in kinds]


def _data(cache: Cache, entries: list[Stored], action: str) -> dict[str, object]:
    data: dict[str, object] = {
        "folder": _folder(cache),
        "entries": len(entries),
        "bytes": sum(e.bytes for e in entries),
        "limit": cache.limit,
    }
    if action == "list":
        data["list"] = [{"name": e.name, "kind": e.kind, "bytes": e.bytes, "run": e.run} for e in entries]
    return data
