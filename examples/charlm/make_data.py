"""Write ``data/train.bin`` and ``data/eval.bin``: the source text of Python's standard library as ASCII codes.

    python examples/charlm/make_data.py [TRAIN_CHARACTERS [EVAL_CHARACTERS]]

The text is the modules that lie directly in the library's folder of this machine, those without a leading underscore,
in the order of their names, one after the other. Every tenth of them is for evaluation alone. Both parts are cut at
the given size, by default 2,000,000 and 100,000 characters. A character is its code, u16; what is not ASCII is ``?``.

Prints what counting pairs of characters gives: the bits a character that a model has to beat.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import numpy as np

V = 128  # as in charlm.nn
OUT = Path(__file__).resolve().parent / "data"


def text(files: list[Path], size: int) -> np.ndarray:
    """The first ``size`` characters of the files, u16."""
    found = b"".join(path.read_text(encoding="utf-8").encode("ascii", errors="replace") for path in files)
    if len(found) < size:
        sys.exit(f"{len(files)} files have {len(found):,} characters, {size:,} are wanted")
    return np.frombuffer(found[:size], np.uint8).astype("<u2")


def pair_bits(train: np.ndarray, held_out: np.ndarray) -> float:
    """Bits a character of a bigram model: how often each pair was seen in training, and once more."""
    counts = np.ones((V, V))
    np.add.at(counts, (train[:-1], train[1:]), 1)
    probability = counts / counts.sum(axis=1, keepdims=True)
    return float(-np.mean(np.log2(probability[held_out[:-1], held_out[1:]])))


def main(train_size: int = 2_000_000, eval_size: int = 100_000) -> None:
    library = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in library.glob("[a-z]*.py") if path.is_file())
    parts = {
        "train": text([path for number, path in enumerate(files) if number % 10], train_size),
        "eval": text(files[::10], eval_size),
    }
    OUT.mkdir(exist_ok=True)
    for name, tokens in parts.items():
        tokens.tofile(OUT / f"{name}.bin")
        print(f"{OUT / name}.bin: {len(tokens):,} characters")
    print(f"pairs of characters: {pair_bits(parts['train'], parts['eval']):.3f} bits a character")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
