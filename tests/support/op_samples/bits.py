"""Samples of tensors of b1 as bits, and of numbers as the bits of others."""

from __future__ import annotations

import struct

import numpy as np
from op_samples.sample import Sample, Spec

from dslc.compiler.ir.types import DType

_LETTERS = {"i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q", "f32": "f"}
_BITS_OF = ("uint8", "int16", "uint32", "int32", "int64")


def _other(x: np.ndarray, dtype: str) -> np.ndarray:
    """Each number packed to bytes, which are read as another."""
    letter = _LETTERS[f"{x.dtype.kind}{8 * x.dtype.itemsize}"]
    raw = struct.pack(f"<{x.size}{letter}", *x.reshape(-1).tolist())
    return np.array(struct.unpack(f"<{x.size}{_LETTERS[dtype]}", raw)).reshape(x.shape)


SHAPES = ((8,), (2, 3, 4), (5, 16), (0, 3), (300, 8))

SAMPLES: dict[str, list[Sample]] = {
    "bitcast": [
        *(
            Sample(
                [Spec(shape, name, 0, 100)],
                {"dtype": DType(f"{'i' if name[0] == 'u' else 'u'}{name.lstrip('uint')}")},
                reference=_other,
            )
            for name in _BITS_OF
            for shape in ((3, 4), (0, 2), ())
        ),
        Sample([np.array([-1, -(2**31), 2**31 - 1, 0], np.int32)], {"dtype": DType.U32}, reference=_other),
        Sample([np.array([0x3F800000, 0x7F7FFFFF, 1, 0x80000000], np.uint32)], {"dtype": DType.F32}, reference=_other),
        Sample(
            [np.array([1.0, -2.5, 1e-45, 3e38], np.float32)], {"dtype": DType.I32}, differentiable=(), reference=_other
        ),
    ],
    "pack_bits": [
        Sample(
            [Spec(shape, "bool")],
            {},
            differentiable=(),
            reference=lambda x: (x.reshape(-1, 8) << np.arange(8)).sum(-1).astype(np.uint8),
        )
        for shape in SHAPES
    ],
    "unpack_bits": [
        Sample(
            [Spec((int(np.prod(shape)) // 8,), "uint8", 0, 255)],
            {"shape": shape},
            differentiable=(),
            reference=lambda x, shape: ((x[:, None] >> np.arange(8)) & 1).astype(bool).reshape(shape),
        )
        for shape in SHAPES
    ],
}
