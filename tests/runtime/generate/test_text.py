"""Texts as tokens and back, whole and as they grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.base.errors import DataError, InputError
from dslc.runtime.generate.text import Bytes, Growing, Numbers, Tokens, codec_of

TEXT = "def naïve(ß): # 龍 🙂\n"


def test_bytes_come_as_whole_characters() -> None:
    codec = codec_of(256, None, numbers=False)
    tokens = codec.encode(TEXT)
    assert isinstance(codec, Bytes) and tokens == list(TEXT.encode()) and codec.decode(tokens) == TEXT
    growing = Growing(codec)
    parts = [growing.add(token) for token in tokens]
    assert "".join(parts) == TEXT and not growing.rest() and all(len(part) <= 1 for part in parts)
    for token in "é".encode()[:1]:
        assert growing.add(token) == ""
    assert growing.rest() == "\ufffd"


def test_a_byte_that_begins_no_character_does_not_stop_the_rest() -> None:
    growing = Growing(Bytes())
    shown = "".join(growing.add(token) for token in [65, 0xFF, 66, 67]) + growing.rest()
    assert shown == "A\ufffdBC"


def test_numbers() -> None:
    codec = codec_of(50_000, None, numbers=True)
    assert isinstance(codec, Numbers) and codec.encode(" 15,2  7,\n") == [15, 2, 7] and codec.decode([15, 2]) == "15 2 "
    for wrong in ("1.5", "-1", "a", "1" * 30, "²"):
        with pytest.raises(InputError, match="no list of tokens"):
            codec.encode(wrong)


def test_a_tokenizer(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from dslc.runtime.data.text.tokenize import tokenizer_of

    letters = pre_tokenizers.ByteLevel.alphabet()
    made = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(sorted(letters))}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.save(str(tmp_path / "t.json"))
    codec = codec_of(256, tokenizer_of(tmp_path / "t.json"), numbers=False)
    tokens = codec.encode(TEXT)
    assert isinstance(codec, Tokens) and codec.decode(tokens) == TEXT
    growing = Growing(codec)
    assert "".join(growing.add(token) for token in tokens) + growing.rest() == TEXT


def test_prompts_and_vocabularies_that_do_not_fit() -> None:
    for codec in (Bytes(), Numbers()):
        with pytest.raises(InputError, match="has no tokens"):
            codec.encode("")
    with pytest.raises(DataError, match="more than there are bytes"):
        codec_of(257, None, numbers=False)
