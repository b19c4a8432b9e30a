"""Augmentation of a batch: the steps of an input's list in sequence.

    data: {augment: {image: [{flip: 0.5}, {crop: {pad: 2}}, {normalize: {mean: [0.5], std: [0.2], scale: 255}}]}}

``normalize`` is always applied, all other steps only in training. The draws depend only on (seed, epoch, row) and the
step's place, never on workers or batches (``draws.py``). So an image and its mask move alike if the same steps have the
same places in their lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.folders import import_modules
from dslc.runtime.data.augment.draws import Draws
from dslc.runtime.data.augment.step import STEPS, Kept, Step

import_modules("dslc.runtime.data.augment.steps")
#: The steps that a list may name.
KINDS: Final[Mapping[str, type[Step]]] = dict(STEPS)


def as_data(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """The steps as JSON data, for a worker."""
    return [{"kind": step.kind, **({} if isinstance(step, Kept) else asdict(step))} for step in steps]  # type: ignore[call-overload]


def of_data(data: Sequence[Mapping[str, Any]]) -> tuple[Step, ...]:
    def made(item: Mapping[str, Any]) -> Step:
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in item.items() if k != "kind"}
        kind = Kept if item["kind"] == Kept.kind else KINDS[item["kind"]]
        return kind(**fields)

    return tuple(made(item) for item in data)


def early(steps: Sequence[Step], file: np.dtype[Any], target: np.dtype[Any]) -> int:
    """How many of the first steps work on the file's pixels (u8), before these are converted to the input's dtype."""
    if file != np.uint8 or not (target.kind == "f" or target == file):
        return 0
    return next((number for number, step in enumerate(steps) if step.always), len(steps))


def check(steps: Sequence[Step], shape: tuple[int, ...], file: np.dtype[Any], target: np.dtype[Any]) -> None:
    """Raises ValueError with the reason if the steps do not fit rows of this shape, of dtype ``file`` before and
    ``target`` after the conversion."""
    count = early(steps, file, target)
    for number, step in enumerate(steps):
        step.check(shape, file if number < count else target)


def apply(
    steps: Sequence[Step],
    batch: NDArray[Any],
    rows: NDArray[np.int64],
    seed: int,
    epoch: int,
    *,
    training: bool,
    first: int = 0,
) -> NDArray[Any]:
    """The batch [n, ...] of these rows after all steps; may modify the input batch. Keeps the dtype.

    ``first``: the place of the first of these steps in the input's list.
    """
    draws = Draws(seed, epoch, rows, first + len(steps))
    for number, step in enumerate(steps, first):
        if training or step.always:
            batch = step.apply(batch, draws.of(number))
    return batch
