"""Finds the first value that is not finite, instruction by instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.session.backend import Bound


@dataclass(frozen=True, slots=True)
class Nonfinite:
    """The first tensor with a NaN or Inf. ``op`` is None for a tensor that existed before the first instruction.

    ``where`` is the node's name and line, or the tensor's name; ``index`` is that of its first such element, ``count``
    the number of such elements.
    """

    op: str | None
    where: str
    shape: tuple[int, ...]
    index: tuple[int, ...]
    value: float
    count: int

    def __str__(self) -> str:
        what = f"`{self.where}`" if self.op is None else f"the output of `{self.op}` at {self.where}"
        size = int(np.prod(self.shape, dtype=np.int64))
        return f"{what} is not finite: {self.value} at {list(self.index)}, {self.count} of {size} values"


class _Found(Exception):
    """Ends the run."""

    def __init__(self, what: Nonfinite) -> None:
        super().__init__()
        self.what = what


def first_nonfinite(bound: Bound, state: Mapping[str, NDArray[Any]]) -> Nonfinite | None:
    """Run a plan whose inputs are set; stops at the first result that is not finite and returns it.

    Before the run, ``state`` and the inputs are checked.
    """
    for name, array in {**state, **bound.inputs}.items():
        found = _in(array, None, name)
        if found is not None:
            return found

    def see(op: str, where: str, outputs: Sequence[NDArray[Any]]) -> None:
        for array in outputs:
            found = _in(array, op, where)
            if found is not None:
                raise _Found(found)

    try:
        bound.watch(see)
    except _Found as found:
        return found.what
    return None


def _in(array: NDArray[Any], op: str | None, where: str) -> Nonfinite | None:
    if array.dtype.kind != "f":
        return None
    bad = ~np.isfinite(array)
    if not bad.any():
        return None
    index = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), array.shape))
    return Nonfinite(op, where, array.shape, index, float(array[index]), int(bad.sum()))
