"""Write text with the trained model, a character at a time.

    python examples/charlm/sample.py ["def "] [--length 400] [--temperature 0.8] [--seed 0]

The model reads a window of T characters and says at each place what may follow. A shorter text stands at the window's
beginning: attention is causal, so the positions after it may hold anything.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "build"))

import charlm  # build/charlm, made by `dslc train` or `dslc build`

T = 64  # as in charlm.nn


def draw(logits: np.ndarray, temperature: float, rng: np.random.Generator) -> int:
    """A class by ``softmax(logits / temperature)``; the most likely one at temperature 0."""
    if temperature == 0:
        return int(logits.argmax())
    # The largest of logits with Gumbel noise is such a draw, and needs no exponentials of large numbers.
    return int(np.argmax(logits / temperature + rng.gumbel(size=logits.shape)))


def sample(prompt: str, length: int, temperature: float, seed: int) -> str:
    """The prompt and ``length`` more characters."""
    rng = np.random.default_rng(seed)
    text = list(prompt.encode("ascii", errors="replace")) or [ord("\n")]
    for _ in range(length):
        window = text[-T:]
        ids = np.zeros((1, T), np.int32)
        ids[0, : len(window)] = window
        text.append(draw(charlm.predict(ids=ids)[0, len(window) - 1], temperature, rng))
    return bytes(text).decode("ascii")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write text with the trained model.")
    parser.add_argument("prompt", nargs="?", default="def ")
    parser.add_argument("--length", type=int, default=400, help="characters to add")
    parser.add_argument("--temperature", type=float, default=0.8, help="0 takes the most likely; 1 is the model's own")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.temperature < 0 or options.length < 0:
        parser.error("length and temperature are not negative")
    print(sample(options.prompt, options.length, options.temperature, options.seed))


if __name__ == "__main__":
    main()
