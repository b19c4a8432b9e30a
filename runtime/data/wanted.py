"""The data that one input of a model asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dslc.runtime.artifact.interface import Tensor
from dslc.runtime.data.augment.apply import as_data, of_data
from dslc.runtime.data.augment.mix import Mix
from dslc.runtime.data.augment.step import Step
from dslc.runtime.data.pictures import AS_STORED, PictureOptions
from dslc.runtime.data.source import Source

if TYPE_CHECKING:
    from dslc.runtime.data.columns.fitted import Fitted


@dataclass(frozen=True)
class Wanted:
    """An input and its sources. ``shape`` is that of one row, as numbers. ``fitted``: the part of what was fitted that
    this input needs; None if it needs nothing. ``tokenizer``: the file named by ``data.tokenizer``. Can be sent to a
    worker."""

    field: str
    files: tuple[Source, ...]
    tensor: Tensor
    shape: tuple[int, ...]
    check_finite: bool
    steps: tuple[Step, ...] = ()
    pictures: PictureOptions = AS_STORED
    fitted: Fitted | None = None
    mix: Mix | None = None
    tokenizer: Path | None = None

    @property
    def described(self) -> bool:
        """True if dslc.yaml describes one of its columns."""
        return self.fitted is not None and bool(self.fitted.columns)

    def as_data(self) -> dict[str, Any]:
        tensor = self.tensor
        return {
            "field": self.field,
            "files": [source.as_data() for source in self.files],
            "tensor": [
                tensor.name,
                tensor.dtype,
                list(tensor.shape),
                None if tensor.range is None else list(tensor.range),
            ],
            "shape": list(self.shape),
            "check_finite": self.check_finite,
            "steps": as_data(self.steps),
            "pictures": self.pictures.as_data(),
            "mix": None if self.mix is None else self.mix.as_data(),
            "tokenizer": None if self.tokenizer is None else str(self.tokenizer),
            "fitted": None if self.fitted is None else self.fitted.as_data(),
        }

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Wanted:
        name, dtype, shape, limits = data["tensor"]
        fitted = None
        if data["fitted"] is not None:
            from dslc.runtime.data.columns.fitted import Fitted

            fitted = Fitted.of_data(data["fitted"])
        return cls(
            data["field"],
            tuple(Source.of_data(source) for source in data["files"]),
            Tensor(name, dtype, tuple(shape), None if limits is None else (limits[0], limits[1])),
            tuple(data["shape"]),
            data["check_finite"],
            of_data(data["steps"]),
            PictureOptions(**data["pictures"]),
            fitted,
            Mix.of_data(data["mix"]),
            None if data["tokenizer"] is None else Path(data["tokenizer"]),
        )
