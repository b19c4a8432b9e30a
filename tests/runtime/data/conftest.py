"""Opening data as a run does, for an interface made for the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dslc.base.errors import DataError
from dslc.runtime.artifact.interface import Dim, Interface, Tensor, Train
from dslc.runtime.data.names import split
from dslc.runtime.data.source import Source
from dslc.runtime.train.data import Dataset, Tolerance, open_dataset


def source(text: str) -> Source:
    path, key = split(text)
    return Source(Path(path), key, text)


@pytest.fixture
def opened() -> Callable[..., Dataset]:
    """``opened(x=("file.csv:a", "f32", ("B",)), ...)``; a fourth item is the range of an integer input."""

    def open_(
        *,
        augment: dict[str, Sequence[Any]] | None = None,
        skip: int = 0,
        notes: list[str] | None = None,
        training: bool = True,
        seed: int = 7,
        **inputs: tuple[Any, ...],
    ) -> Dataset:
        tensors = tuple(Tensor(name, dtype, shape, *limits) for name, (_, dtype, shape, *limits) in inputs.items())
        face = Interface("m", "M", (Dim("B", 1, 64, 4, True),), tensors, (), Train((), {}, 0.1, ()))
        notes = [] if notes is None else notes
        return open_dataset(
            {name: source(text) for name, (text, *_) in inputs.items()},
            face,
            {"B": 4},
            "data.train",
            check_finite=True,
            notice=notes.append,
            seed=seed,
            training=training,
            augment=augment,
            tolerance=Tolerance(skip, notes.append),
        )

    return open_


@pytest.fixture
def refused() -> Callable[[Callable[[], object]], DataError]:
    """The DataError of a call, which must have a place and a help line."""

    def call(attempt: Callable[[], object]) -> DataError:
        with pytest.raises(DataError) as caught:
            attempt()
        assert caught.value.help and caught.value.place and caught.value.exit_code == 3
        return caught.value

    return call
