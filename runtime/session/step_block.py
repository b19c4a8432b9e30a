"""Writes the step block, the scalars of a run."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import ArtifactError, InputError
from dslc.runtime.artifact.dtypes import ITEMSIZE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dslc.runtime.artifact.plan import Scalar

#: The ``struct`` codes of the dtypes; bf16 as raw bits.
_CODES: Final = {"f64": "d", "f32": "f", "f16": "e", "bf16": "H", "i64": "q", "i32": "i", "i16": "h", "i8": "b",
                 "u64": "Q", "u32": "I", "u16": "H", "u8": "B", "b1": "?"}  # fmt: skip


def _code(scalar: Scalar) -> str:
    return _CODES[scalar.dtype]


class StepBlock:
    """The scalars of a plan, written at once; gaps between them become 0. ``place`` is used in messages."""

    def __init__(self, scalars: Sequence[Scalar], place: str) -> None:
        self._scalars = sorted(scalars, key=lambda s: s.offset)
        self._names = [s.name for s in self._scalars]
        self._place = place
        layout, end = "<", 0
        for scalar in self._scalars:
            layout += f"{scalar.offset - end}x{_code(scalar)}"
            end = scalar.offset + ITEMSIZE[scalar.dtype]
        self._packed = struct.Struct(layout)

    def write(self, block: NDArray[np.uint8], at: int, values: Mapping[str, Any]) -> None:
        """Write a value for each scalar into the step block that begins at ``at`` in ``block``. ``seed`` is u64, stored
        bit for bit.

        ArtifactError R301 for a scalar without a value, InputError R105 for a value that its dtype cannot represent.
        """
        if not self._names:
            return
        try:
            given = [values[name] for name in self._names]
        except KeyError as missing:
            raise ArtifactError(
                "R301", f"no argument sets the scalar `{missing.args[0]}`", place=self._place
            ) from missing
        if "seed" in values and values["seed"] >= 1 << 63:
            given = [v - (1 << 64) if n == "seed" else v for n, v in zip(self._names, given)]
        try:
            self._packed.pack_into(block.data, at, *given)
        except (OverflowError, struct.error) as error:
            raise self._refusal(given) from error

    def _refusal(self, given: Sequence[Any]) -> InputError:
        for scalar, value in zip(self._scalars, given):
            try:
                struct.pack("<" + _code(scalar), value)
            except (OverflowError, struct.error):
                said = f"`{scalar.name}` = {value} does not fit {scalar.dtype}[]"
                return InputError("R105", said, place=self._place, help="pass less")
        raise AssertionError("each value fits, but not all of them together")
