"""States in the plans of both targets: verified programs, in regions of their own, in every precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from states.recurrent import CARRIED, SIZES, TRAIN, data, opened

from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options, entry_sizes
from dslc.compiler.pipeline import compile_entry


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_each_entry_keeps_its_states_where_they_belong(tmp_path: Path, target: str, precision: str) -> None:
    """``compile_entry`` proves the program: no value overwrites a state before its last reader, and each state holds
    its new value at the end."""
    (tmp_path / "net.nn").write_text(CARRIED + TRAIN)
    checked = check_file(tmp_path / "net.nn")
    options = Options(target=target, precision=precision, sizes=SIZES)
    for entry, sizes in entry_sizes(checked, options):
        program, _ = compile_entry(checked, entry, sizes, options)
        memory = program.memory
        assert memory is not None
        written = {buffer.region for buffer in plan_of(program).buffers}
        if entry in ("predict", "eval_step"):
            rows = sizes["B"]
            shapes = [(name, type.ints) for name, type, _ in memory.carried]
            assert shapes == [("both.last", (rows, 6)), ("h", (2, rows, 6)), ("steps", ())]
            assert {type.dtype.value for _, type, _ in memory.carried} == {"f32", "i32"}
            assert "context" in written and memory.context_bytes % 64 == 0
        else:
            assert not memory.carried and "context" not in written


@pytest.mark.parametrize("precision", ["f64", pytest.param("bf16", marks=pytest.mark.slow)])
def test_training_and_streams_in_other_precisions(tmp_path: Path, precision: str) -> None:
    """A stream's first call is a prediction, and the steps count."""
    provider = "auto" if precision == "bf16" else "reference"
    with opened(tmp_path, CARRIED + TRAIN, provider=provider, precision=precision) as session:
        dtype = session.interface.inputs[0].dtype
        losses = [session.train_step(**_as(dtype, data(4, n))).loss for n in range(3)]
        assert np.isfinite(losses).all() and session.state_tensors()["train.state.steps"] == 6
        stream, x = session.stream(), _as(dtype, data(2))["x"]
        first, second = stream.predict(x=x).output, stream.predict(x=x).output
        assert np.array_equal(first, session.predict(x=x).output) and not np.array_equal(first, second)


def test_recomputation_reads_the_old_state(tmp_path: Path) -> None:
    """The backward pass computes the cell again from the value before the step."""
    mirrored = CARRIED.replace("block cell", "@mirror(always)\nblock cell").replace(
        "  for l in", "  @mirror(always)\n  for l in"
    )
    with opened(tmp_path, CARRIED + TRAIN) as plain, opened(tmp_path, mirrored + TRAIN, "mirrored") as again:
        for n in range(3):
            assert plain.train_step(**data(4, n)) == again.train_step(**data(4, n))
        one, other = plain.state_tensors(), again.state_tensors()
        assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def _as(dtype: str, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {n: a.astype("f8") if dtype == "f64" and a.dtype.kind == "f" else a for n, a in batch.items()}
