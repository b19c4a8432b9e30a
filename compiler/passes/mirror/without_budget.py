"""Recomputation without a budget: the fewest bytes in the little time that ``auto`` allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dslc.compiler.passes.mirror.candidate_plan import CandidatePlan, Candidates


@dataclass(frozen=True, slots=True)
class Allowance:
    """``share``: the fraction of the modelled step time that recomputation may add. ``least``: the smallest reduction
    of the peak in bytes that is worth it."""

    share: float
    least: int


#: The first that is possible is taken.
AUTO: Final = (Allowance(0.03, 256 << 20), Allowance(0.01, 64 << 20))
_LEAST_PART: Final = 0.05  # the smallest such reduction as a fraction of the peak
_TRIES: Final = 3
_NEAR: Final = 0.1  # of the allowed time: close enough to stop
_SLACK: Final = 0.02  # of the allowed time: safety margin of the next try
_ALL: Final = 0.9  # of the time to spend: if less of it is used, more gives nothing


def fewest_bytes(candidates: Candidates) -> CandidatePlan:
    """The fewest bytes in the time that ``auto`` allows, if the reduction is worth it."""
    training, plain = candidates.training, candidates.plain
    possible = sum(training.bytes[v] for v in training.candidates)
    for allowance in AUTO:
        if possible > allowance.least:
            best = _in_time(candidates, allowance.share)
            if best is not plain and _is_worth_time(plain, best, allowance.least):
                return best
    return candidates.with_asked()


def _in_time(candidates: Candidates, share: float) -> CandidatePlan:
    """The fewest bytes in this share of the step's time.

    The selection spends estimated seconds; the plan made of it may take more or less, so the next try spends more or
    less.
    """
    plain, allowed = candidates.plain, share * candidates.plain.seconds
    best, to_spend = plain, allowed
    for _ in range(_TRIES):
        estimate = candidates.knapsack.choose(seconds=to_spend)
        candidate = candidates.with_dropped(estimate.dropped)
        over = candidate.seconds - plain.seconds - allowed
        if over <= 0 and candidate.peak < best.peak:
            best = candidate
        if -_NEAR * allowed <= over <= 0 or (over < 0 and estimate.seconds < _ALL * to_spend):
            break
        to_spend = estimate.seconds - over - _SLACK * allowed
    return _in_time_on_streams(candidates, best, share)


def _in_time_on_streams(candidates: Candidates, best: CandidatePlan, share: float) -> CandidatePlan:
    """``best``, or a smaller selection with which the multi-stream step is within the limit, too."""
    plain, limit = candidates.plain, (1 + share) * candidates.plain.seconds_on_streams
    for _ in range(_TRIES):
        if best is plain or best.seconds_on_streams <= limit:
            return best
        part = (limit - plain.seconds_on_streams) / (best.seconds_on_streams - plain.seconds_on_streams) - _SLACK
        estimate = candidates.knapsack.choose(seconds=part * (best.seconds - plain.seconds))
        best = candidates.with_dropped(estimate.dropped)
    return best if best.seconds_on_streams <= limit else plain


def _is_worth_time(plain: CandidatePlan, candidate: CandidatePlan, least: int) -> bool:
    """Whether live values need fewer bytes, and the memory plan, too: kernels' scratch can be what is large."""

    def shrinks(before: int, now: int) -> bool:
        return before - now > max(least, _LEAST_PART * before)

    return shrinks(plain.peak, candidate.peak) and shrinks(plain.bytes, candidate.bytes)
