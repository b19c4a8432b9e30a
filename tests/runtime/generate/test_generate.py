"""Generation: the cached step gives the logits and tokens of the whole window, whatever the batch and the prompts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from states.writers import GPT, RECURRENT

from dslc.base.errors import InputError, NumericError
from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ops.registry import meanings
from dslc.compiler.options import Options
from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session

PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 1, 1, 1, 1, 2], [0, 19]]
WAYS: list[dict[str, Any]] = [{"temperature": 0}, {"top_k": 5, "seed": 3}, {"temperature": 0.7, "top_p": 0.9}]


def opened(folder: Path, text: str, model: str, **sizes: tuple[int, ...]) -> Session:
    (folder / "text.nn").write_text(text)
    options = Options(provider="reference", sizes={"predict": sizes})
    artifact = pipeline.build(check_file(f"{folder / 'text.nn'}:{model}"), options).artifact
    (folder / f"{model}.dslc").write_bytes(artifact)
    return load(folder / f"{model}.dslc", weights="init", seed=1, device="cpu", meanings=meanings)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, Session]]:
    """The model of windows and the one with a cache, with the same weights."""
    folder = tmp_path_factory.mktemp("gpt")
    with (
        opened(folder, GPT, "Reader", B=(1, 4), T=(24,)) as one,
        opened(folder, GPT, "Writer", B=(1, 4), T=(1, 5)) as two,
    ):
        assert set(one.weights) == set(two.weights)
        for name in one.weights:
            two.weights[name] = one.weights[name]
        yield one, two


def test_the_cached_step_gives_the_logits_of_the_whole_window(pair: tuple[Session, Session]) -> None:
    reader, writer = pair
    ids = np.random.default_rng(0).integers(0, 20, (4, 24)).astype(np.int32)
    stream = writer.stream()
    cuts = [0, 5, 10, *range(11, 25)]
    found = [stream.predict(ids=ids[:, a:b]) for a, b in pairwise(cuts)]
    assert np.abs(np.concatenate(found, axis=1) - reader.predict(ids=ids)).max() < 2e-6
    assert stream.state["at"] == 24


@pytest.mark.parametrize("way", WAYS)
def test_the_same_text_from_both_in_any_batch(pair: tuple[Session, Session], way: dict[str, Any]) -> None:
    reader, writer = pair
    whole = reader.generate(PROMPTS, 9, **way)
    assert [len(text) for text in whole] == [9] * 4 and all(text.dtype == np.int64 for text in whole)
    assert all(np.array_equal(a, b) for a, b in zip(whole, writer.generate(PROMPTS, 9, **way)))
    assert np.array_equal(reader.generate(PROMPTS[0], 9, **way), whole[0])  # the draws of the first prompt
    six = [*PROMPTS, [3], [3, 3]]  # more than a batch of the writer
    for session in pair:
        more = session.generate(six, 9, **way)
        assert all(np.array_equal(a, b) for a, b in zip(more, whole)) and len(more) == 6
    assert all(np.array_equal(a, b[:4]) for a, b in zip(writer.generate(six, 4, **way), more))


def test_tokens_come_one_by_one_and_end_with_a_stop(pair: tuple[Session, Session]) -> None:
    for session in pair:
        whole = session.generate(PROMPTS, 9, seed=5)
        found: list[list[int]] = [[] for _ in PROMPTS]
        for row, token in session.tokens(PROMPTS, 9, seed=5):
            found[row].append(token)
        assert [list(text) for text in whole] == found
        stop = int(whole[0][4])
        stopped = session.generate(PROMPTS, 9, seed=5, stop=[stop])
        for text, short in zip(whole, stopped):
            at = [i for i, token in enumerate(text) if token == stop]
            assert np.array_equal(short, text[: at[0] + 1 if at else 9])


def test_a_window_shows_the_last_tokens_only(pair: tuple[Session, Session]) -> None:
    reader, writer = pair
    long = list(range(20)) * 2
    assert np.array_equal(reader.generate(long, 1, temperature=0), reader.generate(long[-24:], 1, temperature=0))
    with pytest.raises(NumericError, match="largest logit is nan"):
        writer.generate(long, 1)


def test_a_recurrent_model_with_one_result_for_all_tokens(tmp_path: Path) -> None:
    with opened(tmp_path, RECURRENT.replace("0..4", "0..T").replace("dim T in 1..8 = 4", "dim T = 1"), "Cell",
                B=(1, 2)) as session:  # fmt: skip
        texts = session.generate([[1, 2, 3, 4, 5], [7]], 6, top_k=4)
        stream, text = session.stream(), [1, 2, 3, 4, 5, *texts[0]]
        from dslc.runtime.generate.sampling import Sampling

        for at, token in enumerate(text):
            logits = stream.predict(ids=np.array([[token]], np.uint8)).logits[0]
            if 4 <= at < len(text) - 1:
                assert Sampling(top_k=4).draw(logits, 0, at + 1) == text[at + 1]


@pytest.mark.parametrize(
    ("prompt", "options", "said"),
    [
        ([], {}, "prompt 0"), ([[1], []], {}, "prompt 1"), ([0.5], {}, "prompt 0"), ([20], {}, "tokens are 0 to 19"),
        ([-1], {}, "the token -1"), ([1], {"steps": -1}, "steps"), ([1], {"temperature": -1}, "temperature"),
    ],
)  # fmt: skip
def test_calls_that_are_refused(pair: tuple[Session, Session], prompt: Any, options: dict[str, Any], said: str) -> None:
    for session in pair:
        with pytest.raises(InputError, match=said):
            session.generate(prompt, **{"steps": 2, **options})
        assert session.generate([1], 0).shape == (0,)


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ("Net(ids: i32[B, 4], more: i32[B]) -> [B, 4, 9] { return embedding(ids, 9, 9) * cast(sum(more), \"float\") }",
         "the inputs"),
        ("Net(x: [B, 4]) -> [B, 4, 9] { return x |> linear(36) |> rearrange(\"B (t v) -> B t v\", t=4) }", "its input"),
        ("Net(ids: i32[B, 4]) -> [B] { return mean(embedding(ids, 9, 9), over=[1, 2]) }", "its results"),
    ],
)  # fmt: skip
def test_models_that_write_no_text(tmp_path: Path, signature: str, said: str) -> None:
    with (
        opened(tmp_path, f"nn 1\ndim B in 1..4 = 2\nmodel {signature}\n", "Net") as session,
        pytest.raises(InputError, match=said),
    ):
        session.generate([1, 2, 3, 4], 1)
