"""Sliding-window attention with a cache of a fixed size: a ring of the last keys and values, for any length."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from places import ROOT

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ops.registry import meanings
from dslc.compiler.options import Options
from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session

LENGTH = 23  # more than the ring holds


def opened(folder: Path, text: str, model: str, sizes: dict[str, tuple[int, ...]]) -> Session:
    (folder / "text.nn").write_text(text)
    made = pipeline.build(
        check_file(folder / "text.nn", model), Options(provider="reference", sizes={"predict": sizes})
    )
    (folder / f"{model}.dslc").write_bytes(made.artifact)
    return load(folder / f"{model}.dslc", device="cpu", weights="init", seed=5, meanings=meanings())


@pytest.mark.parametrize("parts", [(4, 1), (1, 4), (3, 4, 1, 2)])
def test_the_ring_of_the_manual_gives_what_the_whole_sequence_gives(parts: tuple[int, ...], tmp_path: Path) -> None:
    page = (ROOT / "docs/language.md").read_text(encoding="utf-8")
    [text] = [t for t in re.findall(r"```nn\n(.*?)```", page, flags=re.DOTALL) if "const RING" in t]
    ids = np.random.default_rng(1).integers(0, 128, (2, LENGTH)).astype(np.int32)
    with (
        opened(tmp_path, text, "Reader", {"B": (2,), "T": (LENGTH,)}) as reader,
        opened(tmp_path, text, "Writer", {"B": (2,), "T": (1, 2, 3, 4)}) as writer,
    ):
        for name in reader.weights:
            writer.weights[name] = np.array(reader.weights[name])
        whole, stream = np.asarray(reader.predict(ids=ids)), writer.stream()
        found, at = [], 0
        while at < LENGTH:
            count = min(parts[len(found) % len(parts)], LENGTH - at)
            found.append(np.asarray(stream.predict(ids=ids[:, at : at + count])).copy())
            at += count
    np.testing.assert_allclose(np.concatenate(found, axis=1), whole, rtol=1e-5, atol=1e-5)
