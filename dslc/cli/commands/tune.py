"""``dslc tune``"""

from __future__ import annotations

import math
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dslc.base.errors import EXIT_OK, EXIT_SIGINT
from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.options import PRECISION_HELP, byte_count, define_option, size_option
from dslc.cli.output import emit, table
from dslc.cli.progress import tune_progress
from dslc.tune.settings import MODES, UNTRIED, Settings

if TYPE_CHECKING:
    from dslc.compiler.lock.model import Block
    from dslc.tune.outcome import Outcome

_SECONDS: Final = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?)(s|m|min)?", re.ASCII)
_SHOWN: Final = 12  # rows


@click.command(cls=Command)
@click.argument("model", metavar="[FILE[:MODEL]]", required=False)
@click.option("--device", default="gpu", metavar="NAME", help="gpu, or gpu:1 for the second one.")
@click.option("--mode", type=click.Choice(MODES), default="limited", help="Which ways to measure; default: limited.")
@click.option("--workspace-limit", default="32MiB", metavar="SIZE", help="Workspace in limited mode; default: 32MiB.")
@click.option(
    "--deterministic/--nondeterministic", default=True, help="Only ways that give the same bits each time; the default."
)
@click.option("--budget", default="120s", metavar="TIME", help="Time to use, such as 120s or 5min; default: 120s.")
@click.option("--again", is_flag=True, help="Measure what was measured before, too.")
@click.option("--providers", metavar="NAME", help="As in `dslc build`.")
@click.option("--precision", metavar="NAME", help=PRECISION_HELP)
@define_option
@size_option
def command(
    model: str | None,
    device: str,
    mode: str,
    workspace_limit: str,
    deterministic: bool,
    budget: str,
    again: bool,
    providers: str | None,
    precision: str | None,
    defines: tuple[str, ...],
    size: tuple[str, ...],
) -> int:
    """Measure on a GPU how each part of a model is computed best.

    Checks and times several ways for each distinct problem of the model, those that take the most time first, and
    writes the best ones to dslc.lock, next to dslc.yaml or FILE; `dslc build` obeys it. A way must give the right
    result, stay within its memory, and be 3 % and 50 ns faster than the default. After Ctrl-C or at the end of the
    time, the lock keeps what was measured, and the next run continues with the rest. The time ends only after at least
    one problem was measured. Modes: off (the default way alone), limited (ways with little workspace), fastest (any
    workspace).
    """
    begun = time.monotonic()
    from dslc.base.cache import Cache
    from dslc.cli.build_options import options_of
    from dslc.cli.locks.providers import decided
    from dslc.cli.requests import requested
    from dslc.compiler.codegen.targets import ARCHITECTURES
    from dslc.compiler.lock.find import FILE, find_lock, merge_into, read_lock
    from dslc.compiler.lock.model import Lock
    from dslc.runtime.cuda.device import index_of
    from dslc.tune.tune import tune

    request = requested(model, target=None, precision=precision, defines=defines, size=size)
    chosen = {} if providers is None else {"providers": providers}
    options = options_of({**request.build, **chosen})
    settings = Settings(
        mode, _bytes(workspace_limit), deterministic, _seconds(budget), again, index_of(device)
    )  # fmt: skip
    path = request.folder / FILE
    earlier = Lock() if find_lock(request.folder) is None else read_lock(path)
    options = decided(options, ARCHITECTURES, earlier)
    cache = Cache.open()
    with tune_progress(settings.budget) as shown:
        outcome = tune(request.checked, options, settings, cache, earlier=earlier, progress=shown, begun=begun)
    before, after = merge_into(path, outcome.blocks, cache)
    emit(_data(path, outcome), _text(path, outcome, after != before))
    return EXIT_SIGINT if outcome.interrupted else EXIT_OK


def _bytes(text: str) -> int:
    size = byte_count(text)
    if size is None and text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    if size is None:
        raise click.BadParameter(f"{text!r} is not a size, for example 32MiB", param_hint="--workspace-limit")
    return size


def _seconds(text: str) -> float:
    match = _SECONDS.fullmatch(text)
    if match is None or not float(match[1]):
        raise click.BadParameter(f"{text!r} is not a time, for example 120s or 5min", param_hint="--budget")
    return float(match[1]) * (1 if match[2] in (None, "s") else 60)


def _data(path: Path, outcome: Outcome) -> dict[str, Any]:
    before, after = outcome.gain
    return {
        "path": str(path),
        "gpu": outcome.gpu,
        "problems": len(outcome.calls),
        "measured": outcome.tuned,
        "found": outcome.found,
        "left": outcome.left,
        "refused": outcome.refused,
        "unlisted": outcome.unlisted,
        "rejected": {block.key: list(block.rejected) for block in outcome.blocks if block.rejected},
        "seconds": outcome.seconds,
        "interrupted": outcome.interrupted,
        "step": {"default": before, "tuned": after},
        "gains": [
            {"key": block.key, "calls": outcome.calls[block.key], "gain": block.gain, "way": str(block.ways[0].choice)}
            for block in _gaining(outcome)
        ],
    }


def _gaining(outcome: Outcome) -> list[Block]:
    """The blocks whose winner is not the default, those first that save the most time."""
    called = [block for block in outcome.blocks if outcome.calls[block.key]]
    found = [block for block in called if block.default is not None and block.ways[0] != block.default]
    return sorted(found, key=lambda block: (-_saved(block, outcome), block.key))


def _saved(block: Block, outcome: Outcome) -> float:
    return 0.0 if block.default is None else outcome.calls[block.key] * (block.default.seconds - block.ways[0].seconds)


def _about(outcome: Outcome) -> str:
    """How long those that are left take, if each takes as long as one of this run, the compilers' time included."""
    if not outcome.tuned:
        return ", with the kernels that are compiled by now"
    return f", which takes about {math.ceil(outcome.seconds / outcome.tuned * len(outcome.left)):,} s"


def _text(path: Path, outcome: Outcome, changed: bool) -> str:
    from dslc.base.words import time_text

    before, after = outcome.gain
    gaining = _gaining(outcome)
    rows = [
        (one_line(block.key)[:70], f"{outcome.calls[block.key]:,}", time_text(block.default.seconds),
         time_text(block.ways[0].seconds), one_line(str(block.ways[0].choice)))
        for block in gaining[:_SHOWN] if block.default is not None
    ]  # fmt: skip
    lines = [table(("problem", "calls", "default", "best", "way"), rows, (1, 2, 3))] if rows else []
    if len(gaining) > len(rows):
        lines.append(f"and {len(gaining) - len(rows)} more")
    lines += [one_line(f"{why} (problems: {count:,})") for why, count in outcome.unlisted.items()]
    said = [{*block.rejected} - {*outcome.unlisted} for block in outcome.blocks]
    rejected = sum(UNTRIED not in why for reasons in said for why in reasons)
    untried = sum(any(UNTRIED in why for why in reasons) for reasons in said)
    if rejected:
        lines.append(f"{rejected:,} wrong or failing ways were rejected; {one_line(str(path))} lists them")
    if untried:
        lines.append(f"{untried:,} problems have more ways than there was time for: --again with a longer --budget")
    lines += [one_line(f"not measured: {key}: {why}") for key, why in outcome.refused.items()]
    if outcome.left:
        why = "interrupted" if outcome.interrupted else "the time is up"
        rest = f"{len(outcome.left):,} not measured yet, those with one way, or that take the least time"
        lines.append(f"{why}: {rest}; `dslc tune` again goes on with them{_about(outcome)}")
    if after:
        lines.append(
            f"all calls by themselves: {time_text(before)} by default, {time_text(after)} tuned ({before / after:.3f}x)"
        )
    wrote = "wrote" if changed else "unchanged:"
    return "\n".join([
        *lines,
        one_line(f"{len(outcome.calls):,} problems on {outcome.gpu}: {outcome.tuned:,} measured, {outcome.found:,} "
                 f"found, in {outcome.seconds:.1f} s; {wrote} {path}"),
    ])  # fmt: skip
