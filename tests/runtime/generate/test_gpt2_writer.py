"""examples/gpt writes what examples/models/gpt2.nn predicts, with the same names of weights."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from places import EXAMPLES

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ops.registry import meanings
from dslc.compiler.options import Options
from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session

SIZE = {"layers": "2", "heads": "2", "d": "16", "vocab": "50"}


def opened(folder: Path, source: str, sizes: dict[str, tuple[int, ...]]) -> Session:
    text = re.sub(r"^train .*?^}\n", "", (EXAMPLES / source).read_text(), flags=re.MULTILINE | re.DOTALL)
    (folder / Path(source).name).write_text(text)
    checked = check_file(folder / Path(source).name, args=SIZE)
    path = folder / f"{Path(source).stem}.dslc"
    path.write_bytes(pipeline.build(checked, Options(provider="reference", sizes={"predict": sizes})).artifact)
    return load(path, weights="init", seed=2, device="cpu", meanings=meanings)


def test_the_logits_and_the_text_are_those_of_the_model_without_a_cache(tmp_path: Path) -> None:
    with (
        opened(tmp_path, "models/gpt2.nn", {"B": (2,), "T": (20,)}) as whole,
        opened(tmp_path, "gpt/writer.nn", {"B": (2,), "T": (1, 4)}) as writer,
    ):
        assert {n: a.shape for n, a in whole.weights.items()} == {n: a.shape for n, a in writer.weights.items()}
        for name in whole.weights:
            writer.weights[name] = 3 * whole.weights[name]
            whole.weights[name] = writer.weights[name]
        ids = np.random.default_rng(0).integers(0, 50, (2, 20)).astype(np.int32)
        stream, found = writer.stream(), []
        for first, end in ((0, 4), (4, 8), *((n, n + 1) for n in range(8, 20))):
            found.append(stream.predict(ids=ids[:, first:end]))
        wanted = whole.predict(ids=ids)
        assert np.abs(np.concatenate(found, axis=1) - wanted).max() < 1e-5 * np.abs(wanted).max()
        prompts = [[1, 2, 3, 4, 5], [9, 8]]
        for one, other in zip(whole.generate(prompts, 12, top_k=5), writer.generate(prompts, 12, top_k=5), strict=True):
            assert np.array_equal(one, other)
