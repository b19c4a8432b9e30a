"""Division by a number that is unknown when a kernel is compiled: a multiplication and a shift."""

from __future__ import annotations


def magic_of(size: int) -> tuple[int, int]:
    """(magic, shift) with ``x // size == (2 * x * magic >> 32) >> shift`` for 0 <= x < 2^31.

    Granlund and Montgomery (1994): magic is 2^(31 + shift) / size, rounded up, returned as the i32 with the same bits.
    A size of 0 is allowed: its result is never used.
    """
    shift = max(0, size - 1).bit_length()
    magic = (1 << 31 + shift) // max(1, size) + 1
    return magic - (1 << 32), shift
