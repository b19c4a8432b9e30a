"""The rules by which measured ways become a choice. Pure: equal measurements give equal choices.

The default needs no reason; another way must be better by a margin, so that noise changes no choice::

    default 50.0 us, A 49.0 us             -> default: A is only 2 % faster
    default 50.0 us, A 40.0 us, B 40.2 us  -> the one of A and B that needs less workspace
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dslc.compiler.ir.choice import OWN, Choice, Measured
from dslc.compiler.lock.model import Block

#: How much faster than the default the winner must be.
MARGIN: Final = 0.03
#: The same in seconds: of kernels of some microseconds, 3 % is less than what a clock tells apart. On an H200, times of
#: equal kernels that take 1.0 to 1.6 us differed by up to 40 ns.
RESOLUTION: Final = 50e-9
#: Ways that take so much more time than the fastest one count as equally fast.
TIE: Final = 0.01
#: A block keeps its text if no time has changed by more.
KEPT: Final = 0.05


#: Seconds for the rounds of one problem, and the part of its share of the budget that they may take: the rest is for
#: compilers and checks.
_LONGEST: Final = 2.0
_SHORTEST: Final = 0.05
_SHARE: Final = 0.5
#: Seconds for which ways of a problem are checked in any case, and how many times its part of all modelled time they
#: may take of what is left: a problem that takes a tenth of a step gets up to a fifth of the budget.
_CHECKS, _FAIR = 1.0, 2.0


def rounds_seconds(left: float, waiting: int, others: float, ways: int) -> float:
    """How long the candidates of a problem may be timed: ``left`` seconds remain for ``waiting`` problems, this one
    included, each of which took ``others`` seconds for compilers and checks so far. Where these take most of the time,
    rounds are short, so that the budget reaches as many problems as it can. A problem with one of its ``ways`` only has
    nothing to choose: short rounds tell the planner enough."""
    each = left / waiting
    return max(_SHORTEST, min(_LONGEST, _SHARE * each, each - others)) if ways > 1 else _SHORTEST


def checks_seconds(left: float, weight: float, weights: float) -> float:
    """How long ways of a problem may be checked before those that are left are not tried any more: ``left`` seconds
    remain for problems whose calls take ``weights`` seconds by the model, those of this one ``weight``."""
    return max(_CHECKS, _FAIR * left * weight / weights if weights else 0.0)


def allowed(choice: Choice, limit: int | None) -> bool:
    """Whether a way needs no more than ``limit`` bytes of workspace; None: no limit."""
    return limit is None or choice.workspace <= limit


def ranked(ways: Sequence[Measured], default: Choice | None, limit: int | None) -> tuple[Measured, ...]:
    """The ways that a lock keeps, best first: the winner, then each one that needs less workspace than all faster ones,
    then the fastest own one. Empty if no way is within the limit.

    ``default``: the choice of a build without a lock, which counts if it is among the ways and within the limit.
    """
    inside = sorted((w for w in ways if allowed(w.choice, limit)), key=_order)
    if not inside:
        return ()
    winner = _winner(inside, default)
    kept = [winner]
    smallest = winner.choice.workspace
    for way in inside:
        if way.choice.workspace < smallest:
            smallest = way.choice.workspace
            kept.append(way)
    own = [way for way in inside if way.choice.provider == OWN][:1]
    return tuple(dict.fromkeys((*kept, *own)))


def _winner(inside: Sequence[Measured], default: Choice | None) -> Measured:
    least = inside[0].seconds
    for way in inside:
        if way.choice == default and way.seconds <= max(least * (1 + MARGIN), least + RESOLUTION):
            return way
    ties = [way for way in inside if way.seconds <= least * (1 + TIE)]
    return min(ties, key=lambda way: (way.choice.workspace, str(way.choice)))


def _order(way: Measured) -> tuple[float, int, str]:
    return way.seconds, way.choice.workspace, str(way.choice)


def settled(old: Sequence[Measured], new: Sequence[Measured]) -> bool:
    """Whether a second measurement says the same: the same winner, the same best own way, and no time that differs by
    more than ``KEPT`` among the ways that both hold."""
    if not old or not new or old[0].choice != new[0].choice or _own(old) != _own(new):
        return False
    before = {way.choice: way.seconds for way in old}
    return all(_near(before[way.choice], way.seconds) for way in new if way.choice in before)


def _own(ways: Sequence[Measured]) -> Choice | None:
    """The best own way, which builds without libraries take."""
    return next((way.choice for way in ways if way.choice.provider == OWN), None)


def joined(old: Block, new: Block, limit: int | None, *, vendor: bool) -> Block:
    """What a lock that holds ``old`` says after a measurement gave ``new``: a lock does not change if nothing else is
    known. Without libraries (``vendor``) the old ways by libraries still count, for builds with them."""
    if not vendor and any(way.choice.provider != OWN for way in old.ways):
        kept = [way for way in (*old.ways, old.default) if way is not None and way.choice.provider != OWN]
        default = new.default if old.default is None else old.default
        ways = ranked([*new.ways, *dict.fromkeys(kept)], None if default is None else default.choice, limit)
        new = replace(new, ways=ways, default=default, versions=old.versions)
    return old if settled(old.ways, new.ways) else new


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= KEPT * max(a, b)
