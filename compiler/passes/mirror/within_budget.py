"""Recomputation within a budget of bytes: the fastest candidate that fits.

The knapsack gets a peak of live bytes and selects what reaches it. Bytes that peaks do not count (io, scratch, and gaps
of the memory plan) are estimated by those of the plain plan. Each try makes a candidate: the first ones lower the peak
until a memory plan fits; later ones raise it, halfway between the highest peak that fits and the lowest that does not,
because a smaller selection may take less time.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from dslc.compiler.passes.mirror.candidate_plan import CandidatePlan, Candidates

_TRIES: Final = 6
_MORE_TRIES: Final = 3  # after the first that fits
_NEAR: Final = 0.03  # of the budget: an unused rest, or a range of peaks, small enough to stop
_ALL_BYTES: Final = -1  # a peak below any, for which everything is dropped


def fastest_within(candidates: Candidates, budget: int) -> CandidatePlan:
    """The fastest candidate that fits the budget, else the one with the fewest bytes."""
    if candidates.plain.bytes <= budget:
        return candidates.with_asked()
    return BudgetSearch(candidates, budget).run()


@dataclass(frozen=True, slots=True)
class _Try:
    """A candidate, and the peak that its selection was estimated to have. ``over``: its bytes above the budget, of its
    memory plan if one was made, else estimated. ``dropped_all``: no selection has a lower peak."""

    candidate: CandidatePlan
    peak: int
    over: int
    dropped_all: bool

    @property
    def fits(self) -> bool:
        return self.over <= 0


class BudgetSearch:
    """``too_high``: the lowest peak that is known not to fit. ``fitting``: the tries that fit, in order. ``fewest``:
    the memory plan with the fewest bytes so far."""

    def __init__(self, candidates: Candidates, budget: int) -> None:
        self.candidates, self.budget = candidates, budget
        self.uncounted = candidates.plain.bytes - candidates.plain.peak
        self.too_high = budget - self.uncounted
        self.fitting: list[_Try] = []
        self.fewest = candidates.plain

    def run(self) -> CandidatePlan:
        peak, tries = self.too_high, _TRIES
        while tries:
            tries -= 1
            tried = self._try(peak)
            if tried.fits:
                tries = tries if self.fitting else _MORE_TRIES
                self.fitting.append(tried)
            elif tried.dropped_all:
                break
            else:
                self.too_high = min(self.too_high, tried.peak)
            if self.fitting and self._is_near():
                break
            peak = self._next_peak(tried, tries)
        if self.fitting:
            fastest = min(self.fitting, key=lambda each: each.candidate.seconds_on_streams)
            return self._with_streams(fastest)
        plain = self.candidates.plain
        return self.candidates.with_asked() if self.fewest is plain else self.fewest

    def _try(self, peak: int) -> _Try:
        """Plans memory only if the estimate fits, or if nothing better can be tried."""
        estimate = self.candidates.knapsack.choose(peak=peak)
        candidate = self.candidates.with_dropped(estimate.dropped)
        over, dropped_all = candidate.peak + self.uncounted - self.budget, estimate.peak > peak
        if over <= 0 or (dropped_all and not self.fitting):
            self.fewest = min(self.fewest, candidate, key=lambda each: each.bytes)
            over = candidate.bytes - self.budget
        return _Try(candidate, estimate.peak, over, dropped_all)

    def _is_near(self) -> bool:
        """Whether what fits leaves little of the budget, or little lies between it and what does not fit."""
        last = self.fitting[-1]
        return self.too_high - last.peak <= _NEAR * self.budget or last.candidate.bytes >= (1 - _NEAR) * self.budget

    def _next_peak(self, tried: _Try, tries: int) -> int:
        """``tries``: how many are left."""
        if self.fitting:
            return (self.fitting[-1].peak + self.too_high) // 2
        return tried.peak - tried.over if tries > 1 else _ALL_BYTES

    def _with_streams(self, best: _Try) -> CandidatePlan:
        """The best candidate, or one with a larger selection if streams then fit the budget, too, and the step ends
        earlier."""
        plan = best.candidate
        unlimited = plan.for_build(dataclasses.replace(plan.build, budget=None))
        if plan.build.streams == 1 or plan.planned.streams or not unlimited.planned.streams:
            return plan
        estimate = self.candidates.knapsack.choose(peak=best.peak - (unlimited.bytes - self.budget))
        smaller = self.candidates.with_dropped(estimate.dropped)
        is_faster = smaller.bytes <= self.budget and smaller.seconds_on_streams < plan.seconds_on_streams
        return smaller if is_faster else plan
