"""Writing the step block."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import ArtifactError, InputError
from dslc.runtime.dtypes import ITEMSIZE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dslc.runtime.plan import Scalar

#: What ``struct`` calls the dtypes; bf16 as its bits.
_CODES: Final = {"f64": "d", "f32": "f", "f16": "e", "bf16": "H", "i64": "q", "i32": "i", "i16": "h", "i8": "b",
                 "u8": "B", "b1": "?"}  # fmt: skip


def _code(scalar: Scalar) -> str:
    return _CODES[scalar.dtype]


class StepBlock:
    """The scalars of a plan, written together: what lies between them becomes 0. ``place`` is for messages."""

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
        """A value for each scalar, into a step block that begins at ``at`` of ``block``. ``seed`` is u64, stored as
        its bits.

        ArtifactError R301 for a scalar that nothing gives, InputError R105 for a value that its dtype cannot hold.
        """
        if not self._names:
            return
        try:
            given = [values[name] for name in self._names]
        except KeyError as missing:
            raise ArtifactError("R301", f"nothing gives the scalar `{missing.args[0]}`", place=self._place) from missing
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
        raise AssertionError("each value fits, and all of them do not")
