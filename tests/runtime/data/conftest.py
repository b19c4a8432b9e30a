"""Opening data as a run does, for an interface made for the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tables.texts import write_tokenizer

from dslc.base.errors import DataError
from dslc.runtime.artifact.interface import Dim, Interface, Tensor, Train
from dslc.runtime.config.sections.columns import columns as columns_of_yaml
from dslc.runtime.config.yaml import parse_yaml
from dslc.runtime.data.columns.fitted import Fitted
from dslc.runtime.data.names import split as split_source
from dslc.runtime.data.source import Source
from dslc.runtime.train.data import Dataset
from dslc.runtime.train.open_dataset import DataSection
from dslc.runtime.train.tolerance import Tolerance


def source(text: str) -> Source:
    path, key = split_source(text)
    return Source(Path(path), key, text)


def described(text: str) -> dict[str, tuple[str, Any]]:
    """``data.columns`` from YAML, one column per line: ``area: {missing: median}``."""
    return columns_of_yaml(parse_yaml(text.encode(), "dslc.yaml"), "data.columns") if text else {}


@pytest.fixture
def opened() -> Callable[..., Dataset]:
    """``opened(x=("file.csv:a", "f32", ("B",)), ...)``; a fourth item is the range of an integer input. ``columns`` is
    the text of ``data.columns``; ``targets`` names the inputs of ``train``."""

    def open_(
        *,
        augment: dict[str, Sequence[Any]] | None = None,
        skip: int = 0,
        notes: list[str] | None = None,
        training: bool = True,
        mix: Any = None,
        seed: int = 7,
        columns: str = "",
        fitted: Fitted | None = None,
        split: float | None = None,
        tokenizer: Path | None = None,
        targets: Sequence[str] = (),
        **inputs: tuple[Any, ...],
    ) -> Dataset:
        tensors = [Tensor(name, dtype, shape, *limits) for name, (_, dtype, shape, *limits) in inputs.items()]
        own = tuple(tensor for tensor in tensors if tensor.name not in targets)
        train = Train(tuple(tensor for tensor in tensors if tensor.name in targets), {}, 0.1, ())
        face = Interface("m", "M", (Dim("B", 1, 64, 4, True),), own, (), train)
        notes = [] if notes is None else notes
        return DataSection(
            {name: source(text) for name, (text, *_) in inputs.items() if text is not None},
            face,
            {"B": 4},
            "data.train",
            check_finite=True,
            notice=notes.append,
            seed=seed,
            training=training,
            mix=mix,
            augment=augment,
            tolerance=Tolerance(skip, notes.append),
            described=described(columns),
            fitted=fitted,
            split=split,
            tokenizer=tokenizer,
        ).open()

    return open_


@pytest.fixture
def refused() -> Callable[[Callable[[], object]], DataError]:
    """The DataError of a call, which must have a place and a help line."""

    def call(attempt: Callable[[], object]) -> DataError:
        with pytest.raises(DataError) as caught:
            attempt()
        assert caught.value.help and caught.value.place and caught.value.exit_code == 3
        return caught.value

    return call


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """The file of a byte-level BPE with special tokens."""
    pytest.importorskip("tokenizers")
    return write_tokenizer(tmp_path / "tokenizer.json")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the store in a cache of the test's own."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("DSLC_CACHE_DIR", str(folder))
    return folder / "data"
