"""Tensors of every integer dtype from the source to predictions: inputs, results, labels, indices."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from sources.in_memory import files
from thinning import taken

import dslc
from dslc.compiler.check.model import check_file, check_program
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build
from dslc.dsl.diagnostics import CompileError
from dslc.dsl.dtype_names import INTEGERS
from dslc.runtime.artifact.dtypes import numpy_dtype

NAMES = [name for name in INTEGERS if name != "b1"]
MODEL = """nn 1
dim B in 1..8 = 5
model Net(ids: {t}[B], other: {t}[B]) -> (score: [B, 3], total: {sum}[], most: {t}[], part: {t}[B], way: b1[B]) {{
  param table: [7, 4] = normal(1.0)
  h = table[ids] + embedding(ids, 7, 4)
  return linear(h, 3) as head, sum(other), max(other), bitwise_and(other, 6) + 1, other > ids
}}
train Net(label: {t}[B]) {{
  loss      = cross_entropy(score, label)
  metrics   {{ accuracy = accuracy(score, label) }}
  optimizer = sgd(lr=0.5)
}}
"""


@pytest.mark.parametrize(("name", "provider"), taken(product(NAMES, ("own", "reference")), 3))
def test_from_the_source_to_results(tmp_path: Path, name: str, provider: str) -> None:
    dtype, wide = numpy_dtype(name), "u64" if name == "u64" else "i64"
    (tmp_path / "net.nn").write_text(MODEL.format(t=name, sum=wide))
    result = build(check_file(str(tmp_path / "net.nn")), Options(provider=provider))
    (tmp_path / "net.dslc").write_bytes(result.artifact)
    top = int(np.iinfo(name.replace("i", "int", 1) if name[0] == "i" else name.replace("u", "uint", 1)).max)
    ids, other = np.array([0, 6, 3, 3, 1], dtype), np.array([top, top - 1, 2, 7, 0], dtype)
    with dslc.load(tmp_path / "net.dslc", weights="init") as session:
        found = session.predict(ids=ids, other=other)
        assert found.total.dtype == numpy_dtype(wide) and found.most.dtype == found.part.dtype == dtype
        assert int(found.total) % 2**64 == sum(map(int, other)) % 2**64 and int(found.most) == top
        with np.errstate(over="ignore"):
            assert found.part.tolist() == ((other & dtype.type(6)) + dtype.type(1)).tolist()
        assert found.way.tolist() == [True, True, False, True, False]
        label = np.array([0, 1, 2, 2, 1], dtype)
        losses = [float(session.train_step(ids=ids, other=other, label=label, lr=0.5).loss) for _ in range(20)]
        assert losses[-1] < 0.5 * losses[0]
        with pytest.raises(dslc.DslcError) as caught:
            session.predict(ids=np.array([0, 7, 0, 0, 0], dtype), other=other)
        assert caught.value.code == "R105"


def test_an_unsigned_tensor_has_no_negative_numbers() -> None:
    for body, code in (("-x", "E0203"), ("x > -1", "E0209"), ("clip(x, low=-1)", "E0209")):
        result = "b1" if ">" in body else "u32"
        with pytest.raises(CompileError) as caught:
            check_program(files(f"nn 1\nmodel Net(x: u32[4]) -> {result}[4] {{\n  return {body}\n}}\n"))
        assert caught.value.diagnostics[0].code == code and caught.value.diagnostics[0].help, body
