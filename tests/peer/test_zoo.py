"""The models of benchmarks/zoo check with the train section of their comparison, for the batch that it draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compare import source
from entries import ENTRIES, Entry
from steps import norm_errors

from dslc.compiler.check.model import check_file


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_model_takes_its_batch(entry: Entry, tmp_path: Path) -> None:
    path = tmp_path / "net.nn"
    path.write_text(source(entry), encoding="utf-8")
    checked = check_file(path, entry.file.partition(":")[2], entry.args)
    sizes = {dim.name: entry.sizes.get(dim.name, dim.default) for dim in checked.dims}
    assert entry.sizes.keys() <= sizes.keys()
    types = {node.name: node.value.type for node in checked.graph.inputs}
    inputs, labels = entry.drawn()
    for name, x in (inputs | labels).items():
        wanted = types[name]
        assert x.shape == tuple(sizes.get(str(n), n) for n in wanted.shape), name
        assert x.dtype == {"u8": np.uint8, "i32": np.int32}.get(str(wanted.dtype), np.float32), name
        assert np.ptp(x.astype(np.float64)) > 0, name


def test_rows_of_words_are_padded() -> None:
    [bert] = [entry for entry in ENTRIES if entry.name == "BERT-base"]
    inputs, labels = bert.drawn()
    assert {int(n) for n in inputs["mask"].sum(1)} == {64, 48}
    np.testing.assert_array_equal(labels["target"] == -100, inputs["mask"] == 0)


def test_an_error_is_seen_in_its_tensor() -> None:
    wanted = {"a": np.ones(4), "b": np.full(4, 1e-9)}
    assert norm_errors({"a": np.array([1, 1, 1, 1.2]), "b": np.full(4, 2e-9)}, wanted) == pytest.approx(
        {"a": 0.1 / 1.001, "b": 1e-6}, rel=1e-3
    )
