"""Measures one problem of a lock again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from dslc.base.visible import one_line
from dslc.cli.progress import tune_progress

if TYPE_CHECKING:
    from dslc.base.cache import Cache
    from dslc.compiler.check.model import Checked
    from dslc.compiler.lock.model import Block, Lock
    from dslc.compiler.options import Options

_SHOWN: Final = 8  # keys of a message


def key_meant(lock: Lock, text: str) -> str:
    """The key of the lock that is equal to the text, or else contains it. A usage error for none, or for several."""
    keys = sorted({block.key for block in lock.blocks})
    found = [key for key in keys if key == text] or [key for key in keys if text in key]
    if len(found) == 1:
        return found[0]
    if not found:
        cause = f"no problem of the lock contains {one_line(text)[:200]!r}; `dslc lock` lists them"
    else:
        more = f"; and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
        cause = f"{len(found):,} problems of the lock contain this: {'; '.join(found[:_SHOWN])}{more}"
    raise click.BadParameter(cause, param_hint="--upgrade")


def measured_again(
    checked: Checked, options: Options, cache: Cache, device: int, lock: Lock, key: str
) -> tuple[list[Block], str | None]:
    """The problem's block, measured again on a GPU of this machine; and why not, if it could not be measured.

    A usage error if the model does not pose the problem. Raises what ``tune`` raises.
    """
    from dslc.tune.settings import Settings
    from dslc.tune.tune import tune

    settings = Settings(again=True, gpu=device)
    with tune_progress(settings.budget) as progress:
        outcome = tune(checked, options, settings, cache, earlier=lock, keys={key}, progress=progress)
    if key not in outcome.calls:
        cause = f"the model, built with these options, does not pose this problem: {key}"
        raise click.BadParameter(cause, param_hint="--upgrade")
    left = "the tuning was interrupted" if outcome.interrupted else "the time is up"
    why = outcome.refused.get(key, left if key in outcome.left else None)
    return outcome.blocks, why
