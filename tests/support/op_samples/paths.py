"""Samples of sums over paths, one path at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from op_samples.sample import Sample, Spec


def onwards(state: int, times: int, skips: np.ndarray) -> Iterator[tuple[int, ...]]:
    """The states of every path of so many times that begins in this one."""
    if times == 1:
        yield (state,)
        return
    for step in range(3):
        new = state + step
        if new < len(skips) and (step < 2 or skips[new]):
            for rest in onwards(new, times - 1, skips):
                yield state, *rest


def log_of(total: float) -> float:
    with np.errstate(divide="ignore"):
        return float(np.log(total))


def path_loss(x: np.ndarray, skips: np.ndarray, times: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    loss, sums = np.zeros(len(x)), np.zeros(x.shape)
    for row, (scores, skip) in enumerate(zip(x, skips)):
        here = np.zeros(scores.shape)
        for t in range(len(scores)):
            for begin in range(min(2, scores.shape[1])):
                for path in onwards(begin, t + 1, skip):
                    here[t, path[-1]] += np.exp(sum(scores[i, s] for i, s in enumerate(path)))
        sums[row] = np.vectorize(log_of)(here)
        last, n = states[row] - 1, times[row]
        if not (0 <= n <= len(scores) and 0 <= last < scores.shape[1]):
            loss[row] = np.nan
        elif n == 0:
            loss[row] = 0 if last == 0 else np.inf
        else:
            loss[row] = -log_of(here[n - 1, max(last - 1, 0) : last + 1].sum())
    return loss, sums


def path_loss_grad(
    x: np.ndarray, skips: np.ndarray, times: np.ndarray, states: np.ndarray, loss: np.ndarray, sums: np.ndarray,
    dy: np.ndarray,
) -> np.ndarray:  # fmt: skip
    dx = np.zeros(x.shape)
    for row, t, s in np.ndindex(*x.shape):
        n, count = min(max(times[row], 0), x.shape[1]), x.shape[2]
        last = min(max(states[row], 1), count) - 1
        if t >= n or np.isinf(loss[row]):
            continue
        rest = 0.0
        for path in onwards(s, n - t, skips[row]):
            if path[-1] in (last, last - 1):
                rest += np.exp(sum(x[row, t + i, p] for i, p in enumerate(path) if i))
        dx[row, t, s] = -dy[row] * np.exp(sums[row, t, s] + loss[row]) * rest
    return dx


def path_scan(x: np.ndarray, stay: np.ndarray, one: np.ndarray, two: np.ndarray, back: bool) -> np.ndarray:
    """The sum over all beginnings, or ends, of paths: that element times the weights of all steps from it."""
    y, every = np.zeros(x.shape), np.ones(x.shape[2], bool)
    for row, begin, s in np.ndindex(*x.shape):
        for times in range(1, x.shape[1] - begin + 1):
            for path in onwards(s, times, every):
                weight = 1.0
                for t, (now, new) in enumerate(pairwise(path), begin + 1):
                    weight *= (stay, one, two)[new - now][row, t, new]
                end = row, begin + times - 1, path[-1]
                if back:
                    y[row, begin, s] += weight * x[end]
                else:
                    y[end] += weight * x[row, begin, s]
    return y


#: rows, times, states; the integers' dtype; the counts of times and of states
CASES: list[tuple[tuple[int, int, int], str, list[int], list[int]]] = [
    ((3, 4, 5), "int32", [4, 3, 2], [5, 3, 5]),
    ((2, 5, 7), "int64", [5, 4], [7, 5]),
    ((1, 1, 1), "int32", [1], [1]),
    ((2, 3, 2), "int32", [3, 0], [2, 1]),
    ((4, 2, 3), "int64", [0, 3, 2, 1], [3, 3, 4, 0]),
    ((1, 3, 33), "int32", [3], [5]),
    ((0, 2, 3), "int32", [], []),
]


def _inputs(shape: tuple[int, int, int], dtype: str, times: list[int], states: list[int]) -> list[np.ndarray | Spec]:
    rows, _, count = shape
    return [Spec(shape), Spec((rows, count), "bool"), np.array(times, dtype), np.array(states, dtype)]


def _given_back(case: tuple[tuple[int, int, int], str, list[int], list[int]]) -> list[np.ndarray | Spec]:
    rows = case[0][0]
    loss = np.where(np.arange(rows) == 1, np.inf, 1.0 + np.arange(rows))
    return [*_inputs(*case), loss, Spec(case[0], low=-3.0, high=0.0), Spec((rows,))]


SAMPLES: dict[str, list[Sample]] = {
    "path_loss": [
        Sample(_inputs(*case), differentiable=() if case[2:] == ([0, 3, 2, 1], [3, 3, 4, 0]) else (0,), outputs=(0,),
               reference=path_loss)
        for case in CASES
    ],
    "path_scan": [
        Sample([Spec(shape)] * 4, {"back": back}, reference=path_scan)
        for shape in ((2, 4, 5), (3, 3, 2), (2, 3, 1), (1, 1, 4), (1, 3, 33), (2, 0, 3), (0, 2, 3), (2, 3, 0))
        for back in (False, True)
    ],
    "path_loss_grad": [Sample(_given_back(case), differentiable=(), reference=path_loss_grad) for case in CASES],
}  # fmt: skip
