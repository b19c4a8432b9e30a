"""The file's memory budget: compares a build's need with it and finds the largest batch that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from dslc.base.errors import BuildError
from dslc.compiler.artifact.state_layout import StateLayout
from dslc.compiler.check.model import Checked
from dslc.compiler.ir.program import Program


def largest_fitting(low: int, high: int, need: Callable[[int], int], limit: int) -> int | None:
    """The largest value in low..high whose need is at most ``limit``, for a need that increases with the value, roughly
    linearly; None if the need of ``low`` exceeds the limit."""
    least, most = need(low), need(high)
    if least > limit or most <= limit:
        return None if least > limit else high
    for step in count():
        if high - low <= 1:
            break
        # interpolate linearly, but bisect every third time, in case the need is not linear
        along = (limit - least) * (high - low) // (most - least) if step % 3 < 2 else (high - low) // 2
        middle = min(low + max(along, 1), high - 1)
        if (found := need(middle)) <= limit:
            low, least = middle, found
        else:
            high, most = middle, found
    return low


def check_budget(
    checked: Checked,
    budget: int | None,
    built: int | None,
    need: int,
    need_of: Callable[[int], int],
    *,
    mirrored: bool = False,
) -> None:
    """Raises E0402 if ``need`` bytes exceed the budget, naming the largest batch below ``built`` that would fit.

    ``need_of(batch)``: the bytes that a build with this batch size needs. ``mirrored``: values are already recomputed
    to save memory.
    """
    if budget is None or need <= budget:
        return
    help = "raise the budget, or make the model smaller"
    if checked.batch is not None and built is not None and built > checked.batch.low:
        found = largest_fitting(checked.batch.low, built - 1, need_of, budget)
        name = checked.batch.name
        if found is not None:
            help = f"the largest {name} that fits is {found}: --size {name}={found}"
        else:
            help = f"even {name}={checked.batch.low} does not fit: {help}"
    what = f"training {checked.name}" if checked.train is not None else checked.name
    at = f" at {checked.batch.name}={built}" if checked.batch is not None and built is not None else ""
    after = " (after mirroring)" if mirrored else ""
    why = f"{what}{at} needs {_size(need)}, the budget is {_size(budget)}{after}"
    raise BuildError("E0402", why, place="budget", help=help)


def _size(bytes: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if bytes >= 2**power:
            return f"{bytes / 2**power:.3g} {unit}"
    return f"{bytes} B"


def bytes_needed(layout: StateLayout, programs: Iterable[Program]) -> int:
    """The bytes that are compared with a budget: the state, plus io, work, context and prepared values of the largest
    entry."""
    plans = [p.memory for p in programs if p.memory is not None]
    return layout.bytes + max(p.io_bytes + p.work_bytes + p.context_bytes + p.prepared_bytes for p in plans)
