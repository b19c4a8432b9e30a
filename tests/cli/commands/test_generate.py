"""``dslc predict --generate``: the text that the session's ``generate`` gives, in each form."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from states.recurrent import built

import dslc as package
from dslc.runtime.generate.text import Bytes

MODEL = """nn 1
dim B in 1..4 = 2
dim T = 6
model Net(ids: i32[B, T]) -> [B, T, 128] {
  return embedding(ids, 128, 8) |> linear(128)
}
"""


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return built(tmp_path, MODEL, sizes={}, provider="auto")


def test_the_text_of_the_session(dslc: Callable, artifact: Path) -> None:
    with package.load(artifact, weights="init") as session:
        wanted = [[int(t) for t in text] for text in session.generate([list(b"ab"), list(b"c")], 9, top_k=7, seed=4)]
    options = ("--artifact", artifact, "--weights", "init", "--top-k", "7", "--seed", "4")
    ran = dslc("--json", "predict", "--generate", "9", "--prompt", "ab", "--prompt", "c", *options)
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)["texts"]
    assert [each["tokens"] for each in found] == wanted and [each["prompt"] for each in found] == ["ab", "c"]
    assert [each["text"] for each in found] == [Bytes().decode(tokens) for tokens in wanted]
    ran = dslc("predict", "--generate", "9", "--prompt", "97,98", "--ids", *options)
    assert ran.out == " ".join(map(str, (97, 98, *wanted[0]))) + " \n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--generate", "3", "-o", "x.npy"), "takes no SOURCE"),
        (("--generate", "3", "data.npy"), "takes no SOURCE"),
        (("--prompt", "a"), "belong to --generate"),
        ((), "Missing option '-o'"),
        (("--generate", "3", "--prompt", "é"), "tokens are 0 to 127"),
        (("--generate", "3", "--top-p", "2"), "top_p"),
        (("--generate", "3", "--tokenizer", "none.json"), "none.json"),
    ],
)
def test_what_does_not_fit_is_refused(dslc: Callable, artifact: Path, options: tuple[str, ...], said: str) -> None:
    ran = dslc("predict", "--artifact", artifact, "--weights", "init", *options)
    assert ran.code != 0 and said in ran.err, ran.err
