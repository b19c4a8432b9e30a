"""Small models of papers, most of 2022 to 2026, with parameters and inputs that follow from names alone.

``recorded.json`` holds what PyTorch computes from them in f64: of each output and of each parameter's gradient the sum
of its elements times fixed weights, and its length; and the loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

FOLDER: Final = Path(__file__).resolve().parents[2] / "papers"
RECORDED: Final = FOLDER / "recorded.json"
PAPERS: Final = tuple(sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.nn")))
RATE: Final = 0.125  # of sgd in all these files, a power of 2
#: How many integers an input has, from ``_FIRST`` on.
_IDS: Final = {
    "ids": 10, "label": 10, "y": 3, "category": 4, "kinds": 2, "left": 2, "right": 2, "masked": 8, "words": 5,
    "gold": 4, "frames": 3, "count": 4, "n": 5, "bytes": 256, "next": 256, "lab": 2,
    "story": 10, "question": 10, "atom": 6, "seen": 2, "source": 11, "given": 11, "history": 10, "likes": 10,
    "hates": 10, "action": 4,
}  # fmt: skip
#: 0 but for the other ends of edges, whose left ends are 0 or 1, for lengths, and where 0 has a meaning of its own.
_FIRST: Final = {"right": 2, "words": 1, "frames": 5, "count": 1, "n": 2}


def parameter(paper: str, name: str, shape: Sequence[int]) -> NDArray[np.float32]:
    """The value of a tensor of the state: scales near 1, others near 0."""
    drawn = np.random.default_rng(crc32(f"{paper} {name}".encode())).random((1, *shape))[0] - 0.5
    if name.endswith("running_var"):
        return (1 + drawn).astype(np.float32)
    if len(shape) < 2:
        near = 1.0 if name.rpartition(".")[2] in ("weight", "scale", "sq", "su", "sv", "sz", "count") else 0.1
        return np.asarray(near + 0.4 * drawn, np.float32)
    return drawn.astype(np.float32)


def given(paper: str, name: str, shape: Sequence[int], integer: bool) -> NDArray[Any]:
    """The value of an input of the model or of its train section."""
    drawn = np.random.default_rng(crc32(f"{paper} input {name}".encode())).random((1, *shape))[0]
    if integer:
        return (_FIRST.get(name, 0) + np.floor(_IDS[name] * drawn)).astype(np.int32)
    match name:
        case "sigma":
            return np.exp(2 * drawn - 1).astype(np.float32)
        case "t":
            return (50 * drawn).astype(np.float32)
        case "counts":
            return np.floor(6 * drawn**2).astype(np.float32)
        case "adj":
            return (drawn < 0.5).astype(np.float32)
    return np.asarray(2 * drawn - 1, np.float32)


def summary(x: NDArray[Any]) -> tuple[float, float]:
    """The weighted sum of the elements, and the length, in f64."""
    flat = x.astype(np.float64).reshape(-1)
    return float(flat @ np.cos(np.arange(flat.size))), float(np.sqrt(flat @ flat))


def errors(found: Mapping[str, NDArray[Any]], wanted: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The difference of each summary from the recorded one, relative to the recorded length; lengths below a thousandth
    of the greatest count as that."""
    least = 1e-3 * max(length for _, length in wanted.values())
    return {
        name: max(abs(a - b) for a, b in zip(summary(found[name]), each, strict=True)) / max(each[1], least)
        for name, each in wanted.items()
    }
