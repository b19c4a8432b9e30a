"""Weights carry the digest of the tokenizer that they were trained with; another one is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from tables.texts import TEXT, write_tokenizer
from training.fake_session import FakeSession

from dslc.base.errors import DataError
from dslc.runtime.config.load import load_config
from dslc.runtime.data.text.tokenize import NOTE, Tokenizer
from dslc.runtime.train.loop import train
from dslc.runtime.train.setup import open_eval
from dslc.runtime.weights import safetensors_file as tensorfile

pytest.importorskip("tokenizers")
YAML = """\
model: toy.nn
data:
  tokenizer: tokenizer.json
  train: {x: t.jsonl:tokens.mask(text), label: t.jsonl:label}
  eval: {x: t.jsonl:tokens.mask(text), label: t.jsonl:label}
train: {epochs: 2, seed: 3}
save: {dir: runs/toy, every: 2 steps}
"""


def test_another_tokenizer_is_refused_by_a_resumed_run_and_by_eval(tmp_path: Path) -> None:
    lines = [{"text": TEXT[at : at + at % 5], "label": at % 3} for at in range(40)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "dslc.yaml").write_text(YAML)
    file = write_tokenizer(tmp_path / "tokenizer.json")
    digest = Tokenizer(file).digest
    session = FakeSession(3)
    session.after_step = lambda step: (_ for _ in ()).throw(RuntimeError("killed")) if step == 6 else None
    with pytest.raises(RuntimeError):
        train(load_config(tmp_path / "dslc.yaml"), session, tmp_path / "build", False, io.StringIO())
    whole = file.read_bytes()
    write_tokenizer(file, vocabulary=300)
    with pytest.raises(DataError, match="trained with another tokenizer") as caught:
        train(load_config(tmp_path / "dslc.yaml"), FakeSession(3), tmp_path / "build", True, io.StringIO())
    assert caught.value.code == "R104" and str(file) in str(caught.value.place)
    file.write_bytes(whole)
    session = FakeSession(3)
    train(load_config(tmp_path / "dslc.yaml"), session, tmp_path / "build", True, io.StringIO())
    assert session.weights.notes[NOTE] == digest
    assert tensorfile.read_metadata(tmp_path / "build/toy.safetensors")[NOTE] == digest
    config = load_config(tmp_path / "dslc.yaml")
    assert open_eval(config, session, session.weights.notes, print).rows == 40
    write_tokenizer(file, vocabulary=300)
    with pytest.raises(DataError, match="trained with another tokenizer"):
        open_eval(config, session, session.weights.notes, print)
    assert open_eval(config, session, {}, print).rows == 40, "weights from before tokenizers were noted"
