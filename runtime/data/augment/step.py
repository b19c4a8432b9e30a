"""One step of an augmentation: its options, what it does to rows, and the table of all steps.

A step is a frozen dataclass in a file of ``steps``, decorated with ``register``. Each of its fields is an option, made
by ``number``, ``whole``, ``pair``, ``channels`` or ``flag``; the reader of ``dslc.yaml`` needs nothing else. The folder
is listed, so a new file needs no entry elsewhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from dslc.runtime.data.augment.draws import StepDraws, Stream
from dslc.runtime.data.augment.planes import axes, planes

OPTION: Final = "option"  # the key of an option in a field's metadata


@dataclass(frozen=True)
class Option:
    """The values that an option takes: a ``number``, a ``whole`` number, a ``pair`` (low, high), numbers for the
    ``channels``, or a ``flag``; each number from ``low`` to ``high``."""

    kind: str
    low: float = -1e30
    high: float = 1e30


def _option(option: Option, default: Any) -> Any:
    return field(default=MISSING if default is None else default, metadata={OPTION: option})


def number(low: float, high: float, default: float | None = None) -> Any:
    return _option(Option("number", low, high), default)


def whole(low: int, high: int, default: int | None = None) -> Any:
    return _option(Option("whole", low, high), default)


def pair(low: float, high: float, default: tuple[float, float] | None = None) -> Any:
    return _option(Option("pair", low, high), default)


def channels(default: tuple[float, ...] | None = None) -> Any:
    return _option(Option("channels"), default)


def flag(default: bool) -> Any:
    return _option(Option("flag"), default)


def internal(default: bool) -> Any:
    """A field that is no option."""
    return field(default=default)


class Step(ABC):
    """A step. ``__post_init__`` raises ValueError with the reason for options that do not fit together.

    ``kind``: its name in a list. ``example``: how it is written. ``short``: the option that a plain value sets.
    ``always``: it is done in evaluation too. ``pixels``: it computes new pixels, which costs much more than a copy.
    """

    kind: ClassVar[str]
    example: ClassVar[str]
    short: ClassVar[str | None] = None
    always: ClassVar[bool] = False
    pixels: ClassVar[bool] = True

    @classmethod
    def options(cls) -> Mapping[str, Option]:
        """The options of a list's author, by name."""
        return {each.name: each.metadata[OPTION] for each in fields(cls) if OPTION in each.metadata}  # type: ignore[arg-type]

    @classmethod
    def required(cls) -> tuple[str, ...]:
        return tuple(each.name for each in fields(cls) if each.default is MISSING)  # type: ignore[arg-type]

    def check(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Raises ValueError with the reason if the step does not fit rows of this shape and dtype."""
        axes(shape)

    @abstractmethod
    def apply(self, batch: NDArray[Any], draws: StepDraws) -> NDArray[Any]:
        """The batch [n, ...] after the step, in the same shape and dtype; may modify the input."""

    def of_mask(self) -> Step:
        """The step that moves the pixels of a mask as this one moves those of its image, and keeps their values."""
        return Kept()


class ByRow(Step):
    """A step that computes each row by itself."""

    def apply(self, batch: NDArray[Any], draws: StepDraws) -> NDArray[Any]:
        for at, image in enumerate(planes(batch)):
            found = self.image(image, draws.row(at))
            if found is not image:
                for plane, new in zip(image, found):  # faster than all channels at once
                    plane[...] = new
        return batch

    @abstractmethod
    def image(self, image: NDArray[Any], draw: Stream) -> NDArray[Any]:
        """One image [C, H, W] after the step; may be the input, unchanged or modified."""


class Coloring(ByRow):
    """A step that changes the values of pixels, which are integers from 0 to 255."""

    def check(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        check_pixels(self.kind, shape, dtype)


class Kept(Step):
    """Changes nothing: in the list of a mask, the place of a step that changes colours."""

    kind = "kept"
    example = "{kept: {}}"
    pixels = False

    def apply(self, batch: NDArray[Any], draws: StepDraws) -> NDArray[Any]:
        return batch

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kept)

    def __hash__(self) -> int:
        return hash(self.kind)


STEPS: Final[dict[str, type[Step]]] = {}
Registered = TypeVar("Registered", bound=type[Step])


def register(step: Registered) -> Registered:
    """Adds a step to the table; returns it."""
    STEPS[step.kind] = step
    return step


def check_pixels(kind: str, shape: tuple[int, ...], dtype: np.dtype[Any], *, coloured: bool = False) -> None:
    """Raises ValueError if rows are not images u8; ``coloured``: with red, green and blue."""
    _, _, channel = axes(shape)
    if dtype != np.uint8:
        cause = f"`{kind}` needs pixels from 0 to 255 of files with u8, before `normalize`; here they are {dtype.name}"
        raise ValueError(cause)
    if coloured and (channel is None or shape[channel] != 3):
        raise ValueError(f"`{kind}` needs rows with 3 channels, not {list(shape)}")
