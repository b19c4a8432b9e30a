"""A counter-based random number generator: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers:
as easy as 1, 2, 3", SC 2011, doi:10.1145/2063384.2063405.

A draw is four 32-bit words, a function of a 128-bit counter and a 64-bit key. Here

- counter words 0 and 1 are the low and high half of the **draw number**, words 2 and 3 of the **step**;
- key words 0 and 1 are the low and high half of ``key xor seed``, the key from ``key_of``.

The draw number depends on the element: elements are numbered row-major over the whole batch, so element
``e = row * row_elements + index``, where ``row`` is the index of the first row of this batch, ``row_elements`` the
elements of a row, and ``index`` the row-major index in the tensor. A draw serves 4 elements of 32 bits (draw
``e // 4``, word ``e % 4``) or 8 of 16 bits (draw ``e // 8``, word ``e % 8 // 2``, its low half if ``e`` is even).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS: Final = (0x9E3779B9, 0xBB67AE85)
ROUNDS: Final = 10
_BLOCK = 1 << 12  # draws per block, so that the rounds stay in the cache
_WORD = (1 << 32) - 1
_LONG = (1 << 64) - 1


def key_of(path: str, purpose: str) -> int:
    """The key of a random node: the first 8 bytes, little-endian, of SHA-256 of path, zero byte, purpose."""
    digest = hashlib.sha256(path.encode() + b"\0" + purpose.encode()).digest()
    return int.from_bytes(digest[:8], "little")


def philox(counter: Array, key: tuple[int, int]) -> Array:
    """Ten rounds: u32 counters [4, n] and the two words of a key give u32 words [4, n]."""
    c0, c1, c2, c3 = (counter[i].astype(np.uint64) for i in range(4))
    k0, k1 = key
    m0, m1 = (np.uint64(m) for m in MULTIPLIERS)
    low, shift = np.uint64(_WORD), np.uint64(32)
    for _ in range(ROUNDS):
        c0 *= m0
        c2 *= m1
        c1 ^= c2 >> shift
        c1 ^= np.uint64(k0)
        c3 ^= c0 >> shift
        c3 ^= np.uint64(k1)
        c2 &= low
        c0 &= low
        c0, c1, c2, c3 = c1, c2, c3, c0
        k0, k1 = (k0 + KEY_STEPS[0]) & _WORD, (k1 + KEY_STEPS[1]) & _WORD
    return np.stack([c0, c1, c2, c3]).astype(np.uint32)


def draws(first: int, count: int, *, key: int, seed: int, step: int) -> Array:
    """u32 words [count, 4] of the draws ``first``, ``first + 1``, ...; all indices are modulo 2^64."""
    mixed = (key ^ seed) & _LONG
    found = np.empty((count, 4), np.uint32)
    for start in range(0, count, _BLOCK):
        part = found[start : start + _BLOCK]
        number = np.arange(len(part), dtype=np.uint64) + np.uint64((first + start) & _LONG)
        counter = np.empty((4, len(part)), np.uint32)
        counter[0] = number & np.uint64(_WORD)
        counter[1] = number >> np.uint64(32)
        counter[2], counter[3] = step & _WORD, (step >> 32) & _WORD
        part[...] = philox(counter, (mixed & _WORD, mixed >> 32)).T
    return found


def words(start: int, count: int, *, key: int, seed: int, step: int) -> Array:
    """A u32 for each of the elements ``start``, ``start + 1``, ..., [count]."""
    first = start // 4
    found = draws(first, -(-(start + count) // 4) - first, key=key, seed=seed, step=step).reshape(-1)
    return found[start - first * 4 :][:count]


def halves(start: int, count: int, *, key: int, seed: int, step: int) -> Array:
    """A u16 for each of the elements ``start``, ``start + 1``, ..., [count]."""
    first = start // 8
    found = draws(first, -(-(start + count) // 8) - first, key=key, seed=seed, step=step)
    split = found.astype("<u4", copy=False).view("<u2").reshape(-1)  # the low half comes first
    return split[start - first * 8 :][:count]


def uniform(bits: Array) -> Array:
    """f32 in [0, 1): the upper 24 of 32 bits, exactly."""
    return (bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def normal(start: int, count: int, *, key: int, seed: int, step: int) -> Array:
    """A standard normal f32 for each of the elements ``start``, ``start + 1``, ..., by Box and Muller.

    Words (0, 1) of a draw give its elements 0 and 1, words (2, 3) its elements 2 and 3. With the words w, v of a pair:
    u = w * 2^-32 + 2^-33 in f32, so that 0 < u <= 1; a = (the upper 24 bits of v, signed) * 2^-23, so that -1 <= a < 1;
    the elements are sqrt(-2 log u) times cos(pi a) and sin(pi a). From u and a on this computes in f64 and rounds once;
    a target that stays in f32 differs by less than 4e-6.
    """
    first = start // 4
    pairs = draws(first, -(-(start + count) // 4) - first, key=key, seed=seed, step=step).reshape(-1, 2)
    u = pairs[:, 0].astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)
    a = (pairs[:, 1].astype(np.int32) >> 8).astype(np.float64) * 2.0**-23
    radius = np.sqrt(-2.0 * np.log(u.astype(np.float64)))
    found = np.stack([radius * np.cos(np.pi * a), radius * np.sin(np.pi * a)], axis=-1).astype(np.float32)
    return found.reshape(-1)[start - first * 4 :][:count]
