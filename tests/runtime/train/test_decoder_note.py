"""A run records what decodes its images, and tells on resume if that has changed."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from training.fake_session import FakeSession

from dslc.runtime.config.load import load_config
from dslc.runtime.data.pictures import NOTE
from dslc.runtime.train.data import Dataset
from dslc.runtime.train.loop import train


@pytest.mark.parametrize(("later", "told"), [("spam 1", False), ("spam 2", True), (None, False)])
def test_another_decoder_is_told_on_resume(
    project: Path, monkeypatch: pytest.MonkeyPatch, later: str | None, told: bool
) -> None:
    monkeypatch.setattr(Dataset, "decoder_note", lambda self: {NOTE: "spam 1"})
    session = FakeSession(3)
    session.after_step = lambda step: (_ for _ in ()).throw(RuntimeError("killed")) if step == 6 else None
    config = load_config(project / "dslc.yaml", {"save.every": "2 steps"})
    with pytest.raises(RuntimeError):
        train(config, session, project / "build", False, io.StringIO())
    monkeypatch.setattr(Dataset, "decoder_note", lambda self: {} if later is None else {NOTE: later})
    for number in range(2):
        console, session = io.StringIO(), FakeSession(3)
        train(config, session, project / "build", True, console)
        again = told and number == 0
        assert ("spam 2 decodes the images, it was spam 1" in console.getvalue()) == again, console.getvalue()
        assert session.weights.notes[NOTE] == (later or "spam 1")
