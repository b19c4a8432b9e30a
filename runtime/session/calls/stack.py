"""The arguments of many training steps: arrays that hold the inputs of all steps along a first axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslc.runtime.session.backend import OnDevice

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Stack:
    """``arrays``: inputs with the steps as an additional first axis. ``several``: numbers, one per step; ``numbers``:
    numbers that apply to all steps."""

    steps: int
    arrays: dict[str, NDArray[Any] | OnDevice]
    several: dict[str, list[object]]
    numbers: dict[str, object]

    def of(self, step: int) -> dict[str, object]:
        """The arguments of a step, by name."""
        found = self.numbers_of(step)
        for name, array in self.arrays.items():
            found[name] = array.at(step) if isinstance(array, OnDevice) else array[step]
        return found

    def numbers_of(self, step: int) -> dict[str, object]:
        return {**self.numbers, **{name: values[step] for name, values in self.several.items()}}

    def part(self, first: int, count: int) -> dict[str, NDArray[Any] | OnDevice] | None:
        """The arrays of ``count`` steps from ``first``; None if there are fewer steps."""
        if first + count > self.steps:
            return None
        return {name: array[first : first + count] for name, array in self.arrays.items()}
