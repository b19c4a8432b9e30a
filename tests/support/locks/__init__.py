"""Locks for tests: plain blocks, and random ones with every field."""

from __future__ import annotations

from random import Random
from typing import Final

from dslc.compiler.ir.choice import Choice, Measured
from dslc.compiler.lock.model import Block, Lock

GPU: Final = "NVIDIA H200, 132 SMs, sm_90"
_GPUS: Final = (GPU, "NVIDIA H100 PCIe, 114 SMs, sm_90", "NVIDIA A100-SXM4-80GB, 108 SMs, sm_80")
_ALGORITHMS: Final = {
    "own": ("", "tile=128x64x64/64x32 stages=3 split=4", "rows=4 threads=256"),
    "cublaslt": ("", "id=66 tile=20 stages=35 splitk=1 reduction=0 swizzle=0 custom=0 inner=0 cluster=2"),
    "cudnn": ("eng62_k2=5_k3=0", "eng3_k1=2"),
}
_CHARACTERS: Final = "abcxyz019 =,.()[]{}#'\"\\->é漢_/+"


def way(seconds: float, provider: str = "own", algorithm: str = "", workspace: int = 0) -> Measured:
    """A measured way; by default dslc's own kernel."""
    return Measured(Choice(provider, algorithm, workspace), seconds)


def block(key: str, gpu: str = GPU, ways: tuple[Measured, ...] = (way(1e-6),)) -> Block:
    """A block whose only way took a microsecond."""
    return Block(key, gpu, ways)


def random_lock(draw: Random) -> Lock:
    """A lock with up to eight blocks of any content."""
    return Lock.of(_block(draw) for _ in range(draw.randint(0, 8)))


def _block(draw: Random) -> Block:
    return Block(
        _text(draw, 1, 160),
        draw.choice(_GPUS),
        tuple(_way(draw) for _ in range(draw.randint(1, 5))),
        draw.choice([None, _way(draw)]),
        draw.choice([0.0, draw.random(), 10.0 ** draw.randint(-300, 20)]),
        draw.choice([0.0, draw.random(), 10.0 ** draw.randint(-300, 20)]),
        tuple(_text(draw, 0, 500) for _ in range(draw.randint(0, 4))),
        _text(draw, 0, 100),
    )


def _way(draw: Random) -> Measured:
    provider = draw.choice([*_ALGORITHMS])
    seconds = draw.uniform(1, 10) * 10.0 ** draw.randint(-9, 2)
    return way(
        seconds, provider, draw.choice(_ALGORITHMS[provider]), draw.choice([0, 256, 1 << 20, draw.getrandbits(40)])
    )


def _text(draw: Random, least: int, most: int) -> str:
    return "".join(draw.choice(_CHARACTERS) for _ in range(draw.randint(least, most)))
