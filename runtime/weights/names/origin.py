"""The tensors of a file that a tensor of the model comes from, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from dslc.base.errors import ArtifactError
from dslc.runtime.weights.names.rule import Rule

if TYPE_CHECKING:
    from dslc.runtime.weights.tensor_bytes import FileTensor


class Shaped(Protocol):
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


@dataclass(frozen=True)
class Origin:
    """``pieces``: names in the file, in the order of a join; ``part``: the number of the part of a split."""

    pieces: tuple[str, ...]
    rule: Rule | None = None
    part: int = 0

    @property
    def action(self) -> str:
        """What the rule does to the values, for people; empty if it only renames."""
        said = []
        if self.rule is not None and self.rule.rearrange is not None:
            said.append(self.rule.rearrange.text)
        if self.rule is not None and self.rule.join is not None:
            said.append(f"join {len(self.pieces)}")
        if self.rule is not None and self.rule.split is not None:
            said.append("split")
        return ", ".join(said)

    def described(self, have: Mapping[str, Shaped], place: str) -> tuple[str, tuple[int, ...]]:
        """Dtype and shape, without reading values. ArtifactError R305 if the rule does not fit the shape."""
        first = have[self.pieces[0]]
        shapes = [self._arranged(name, have[name].shape, place) for name in self.pieces]
        rule = self.rule
        if rule is None or (rule.join is None and rule.split is None):
            return first.dtype, shapes[0]
        axis = rule.axis
        if len(shapes[0]) <= axis:
            self._refuse(f"it has no axis {axis}", place)
        for name, shape in zip(self.pieces, shapes, strict=True):
            alike = len(shape) == len(shapes[0]) and shape[:axis] + shape[axis + 1 :] == (
                shapes[0][:axis] + shapes[0][axis + 1 :]
            )
            if have[name].dtype != first.dtype or not alike:
                self._refuse(f"{self.pieces[0]!r:.60} and {name!r:.60} cannot be joined on axis {axis}", place)
        if rule.split is not None:
            start, stop = self._span(shapes[0][axis], place)
            return first.dtype, (*shapes[0][:axis], stop - start, *shapes[0][axis + 1 :])
        return first.dtype, (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])

    def tensor(self, tensors: Mapping[str, FileTensor], place: str) -> FileTensor:
        """The tensor; a copy unless it is only renamed. ArtifactError R305 as of ``described``."""
        from dslc.runtime.weights.tensor_bytes import FileTensor

        dtype, shape = self.described(tensors, place)
        rule = self.rule
        if rule is None or (rule.rearrange is None and rule.join is None and rule.split is None):
            return tensors[self.pieces[0]]
        try:
            arrays = [tensors[name].array() for name in self.pieces]
        except KeyError:
            self._refuse(f"its dtype {dtype} is not supported", place)
        if rule.rearrange is not None:
            arrays = [rule.rearrange.apply(array) for array in arrays]
        array: np.ndarray[Any, Any] = np.concatenate(arrays, rule.axis) if rule.join is not None else arrays[0]
        if rule.split is not None:
            start, stop = self._span(array.shape[rule.axis], place)
            array = array[(*[slice(None)] * rule.axis, slice(start, stop))]
        raw = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        return FileTensor(dtype, shape, raw)

    def _arranged(self, name: str, shape: tuple[int, ...], place: str) -> tuple[int, ...]:
        if self.rule is None or self.rule.rearrange is None:
            return shape
        found = self.rule.rearrange.shape(shape)
        if found is None:
            self._refuse(f"its shape {list(shape)} is not that of `{self.rule.rearrange.text}`", place, name)
        return found

    def _span(self, size: int, place: str) -> tuple[int, int]:
        """Where this part of a split begins and ends on an axis of this size."""
        assert self.rule is not None and self.rule.split is not None and self.rule.split.texts is not None
        parts = self.rule.parts or (1,) * len(self.rule.split.texts)
        if size % sum(parts):
            self._refuse(f"its axis {self.rule.axis} of {size} cannot be split into {sum(parts)} equal pieces", place)
        unit = size // sum(parts)
        return unit * sum(parts[: self.part]), unit * sum(parts[: self.part + 1])

    def _refuse(self, why: str, place: str, name: str | None = None) -> NoReturn:
        assert self.rule is not None
        raise ArtifactError(
            "R305",
            f"`{(name or self.pieces[0])[:80]}`: {why}",
            place=place,
            help=f"change the rule `{self.rule.pattern.text[:80]}`",
        )
