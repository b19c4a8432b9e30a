"""Write ``data/train.txt`` and ``data/eval.txt``: what Python's standard library says about itself.

    python examples/lstm/make_data.py [TRAIN_CHARACTERS [EVAL_CHARACTERS]]

The text is the docstrings of the modules that lie directly in the library's folder of this machine, in the order of
their names. Every tenth module is for evaluation alone. Both parts are cut at the given size, by default 400,000 and
40,000 characters. What is not ASCII becomes ``?``.

Prints what counting pairs of characters gives: the bits a character that a model has to beat.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
from pathlib import Path

import numpy as np

V = 128  # as in lstm.nn
OUT = Path(__file__).resolve().parent / "data"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(file: Path) -> str:
    """The docstrings of a module, its classes and functions."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    found = (ast.get_docstring(node) for node in nodes if isinstance(node, DOCUMENTED))
    return "".join(f"{text}\n\n" for text in found if text)


def text(files: list[Path], size: int) -> np.ndarray:
    """The first ``size`` characters of the files' docstrings, u8."""
    found = "".join(map(docstrings, files)).encode("ascii", errors="replace")
    if len(found) < size:
        sys.exit(f"{len(files)} files have {len(found):,} characters, {size:,} are wanted")
    return np.frombuffer(found[:size], np.uint8)


def pair_bits(train: np.ndarray, held_out: np.ndarray) -> float:
    """Bits a character of a bigram model: how often each pair was seen in training, and once more."""
    counts = np.ones((V, V))
    np.add.at(counts, (train[:-1], train[1:]), 1)
    probability = counts / counts.sum(axis=1, keepdims=True)
    return float(-np.mean(np.log2(probability[held_out[:-1], held_out[1:]])))


def main(train_size: int = 400_000, eval_size: int = 40_000) -> None:
    library = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in library.glob("[a-z]*.py") if path.is_file())
    parts = {
        "train": text([path for number, path in enumerate(files) if number % 10], train_size),
        "eval": text(files[::10], eval_size),
    }
    OUT.mkdir(exist_ok=True)
    for name, characters in parts.items():
        characters.tofile(OUT / f"{name}.txt")
        print(f"{OUT / name}.txt: {len(characters):,} characters")
    print(f"pairs of characters: {pair_bits(parts['train'], parts['eval']):.3f} bits a character")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
