"""Several updates of a divided batch: each one adds the gradients of all parts, then changes its parameters, which the
next loss reads."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sources.in_memory import files

import dslc
from dslc.base.errors import DslcError
from dslc.compiler.check.model import check_program
from dslc.compiler.options import Options, entry_sizes
from dslc.compiler.pipeline import build, compile_entry

#: The critic reads buffers, draws random numbers, and its second call reads the statistics that its first one left; the
#: layer `slow` follows what the last update leaves.
HEAD = """nn 1
dim B in 1..64 = 4
block critic(x: [B, N]) -> [B, 1] {
  buffer centre: [N] = 0
  y = x - centre
  centre = 0.9 * centre + 0.1 * mean(x, over=0)
  return y |> linear(8) as hidden |> batchnorm as bn |> leaky_relu(0.2) |> dropout(0.2) |> linear(1) as score
}
model GAN(real: [B, 2], z: [B, 3]) -> (fake: [B, 2], on_real: [B, 1], on_fake: [B, 1], on_copy: [B, 1]) {
  layer judge = critic()
  fake = z |> linear(8) as inner |> relu |> linear(2) as outer
  return fake, judge(real), judge(fake), judge(stop_gradient(fake))
}
"""
CRITIC = "mean(softplus(-on_real)) + mean(softplus(on_copy))", "adam(lr=0.02)"
OTHER = "mean(softplus(-on_fake))", "adam(lr=0.02, clip_value=0.001)"
STEPS = """train GAN() {{
  step critic {{ params = "judge"; loss = {0[0]}; optimizer = {0[1]} }}
  step generator {{ params = ["inner", "outer"]; loss = {1[0]}; optimizer = {1[1]} }}
  metrics {{ found = mean(where(on_real > 0, 1.0, 0.0)) }}
  {more}
}}
{end}
"""
ONE = "train GAN() {{\n  loss = {0[0]}\n  optimizer = {0[1]}\n  {more}\n}}\n{end}\n"
JUDGE, MAKER = ("judge",), ("inner", "outer")
WAYS = [
    ("accumulate = 2", "", 2),
    ("", "mesh { shards = 4 }", 4),
    ("accumulate = 3", "mesh { shards = 2 }", 6),
    ("ema = 0.9; accumulate = 2", "", 2),
]


def opened(folder: Path, name: str, text: str, head: str = HEAD) -> Any:
    shards = 4 if "shards = 4" in text else 2 if "shards = 2" in text else 1
    sizes = {"train": {"B": (4 * shards,)}}
    options = Options(provider="reference", precision="f64", sizes=sizes, fuse=False)
    path = folder / f"{name}.dslc"
    path.write_bytes(build(check_program(files(head + text)), options).artifact)
    return dslc.load(path, device="cpu", weights="init", seed=3)


def batch(step: int, rows: int) -> dict[str, NDArray[np.float64]]:
    rng = np.random.default_rng(step)
    return {"real": rng.normal(size=(rows, 2)), "z": rng.normal(size=(rows, 3))}


@pytest.mark.parametrize(("more", "end", "parts"), WAYS, ids=["micro", "shards", "both", "averages"])
def test_a_step_is_one_step_of_each_section_in_turn(tmp_path: Path, more: str, end: str, parts: int) -> None:
    """Two sections of one loss each start from the same state; of each remains what its step trains. The second one
    begins with what the first one left, buffers too, and its parts all read these: two micro-batches are two shards."""
    later, mesh = (more.replace("accumulate = 2", ""), "mesh { shards = 2 }") if not end else (more, end)
    with ExitStack() as held:
        both = held.enter_context(opened(tmp_path, "both", STEPS.format(CRITIC, OTHER, more=more, end=end)))
        first = held.enter_context(opened(tmp_path, "first", ONE.format(CRITIC, more=more, end=end)))
        second = held.enter_context(opened(tmp_path, "second", ONE.format(OTHER, more=later, end=mesh)))
        state = dict(both.state_tensors())
        for step in range(4):
            given = batch(step, 4 * parts)
            found = both.train_step(**given)
            first.restore(_for(first, state), step)
            one = first.train_step(**given)
            state |= {n: v for n, v in first.state_tensors().items() if not n.startswith(MAKER)}
            second.restore(_for(second, state), step)
            other = second.train_step(**given)
            state |= {n: v for n, v in second.state_tensors().items() if n.startswith(MAKER)}
            assert found.metrics["critic"] == one.loss and found.metrics["generator"] == other.loss
            assert found.loss == one.loss + other.loss and found.nonfinite is None
            ours = both.state_tensors()
            assert {n: abs(v - state[n]).max() for n, v in ours.items() if v.tobytes() != state[n].tobytes()} == {}
        start = held.enter_context(dslc.load(tmp_path / "both.dslc", device="cpu", weights="init", seed=3))
        before = start.state_tensors()
        assert all(v.tobytes() != ours[n].tobytes() for n, v in before.items() if not n.endswith("grad_sum"))


def _for(session: Any, state: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The state for a session; it has no raw weight of what it does not train, and reads the weight itself."""
    own = session.state_tensors()
    return {n: state.get(n if f"{n}.raw" in own else f"{n}.raw", state.get(n, v)) for n, v in own.items()}


#: What PyTorch 2.15 computes in f64 from these inputs and initial values, without dropout, for three micro-batches of
#: four rows: both losses of three steps.
TORCH = [
    (1.4773230652700018, 0.5131499714653174),
    (1.4475702208929215, 0.5600428783384676),
    (1.4203833512465172, 0.601660845132232),
]


def test_the_losses_are_those_of_pytorch(tmp_path: Path) -> None:
    text = STEPS.format(CRITIC, OTHER, more="accumulate = 3", end="")
    with opened(tmp_path, "net", text, HEAD.replace(" |> dropout(0.2)", "")) as session:
        for step, (critic, generator) in enumerate(TORCH):
            found = session.train_step(**batch(step, 12))
            assert found.metrics["critic"] == pytest.approx(critic, rel=1e-12)
            assert found.metrics["generator"] == pytest.approx(generator, rel=1e-12)
            assert found.loss == pytest.approx(critic + generator, rel=1e-12)


def test_a_search_finds_a_value_of_a_later_update(tmp_path: Path) -> None:
    """The first update has been made when the second one's loss is computed."""
    for number, (more, end, parts) in enumerate(WAYS[:2]):
        text = STEPS.format(CRITIC, (OTHER[0] + " + 0 * log(mean(z[:, 0]))", OTHER[1]), more=more, end=end)
        with opened(tmp_path, f"net{number}", text) as session:
            given = batch(0, 4 * parts)
            given["z"][:, 0] = 1
            assert session.find_nonfinite(**given) is None and session.step == 1
            given["z"][-1, 0] = -1e6
            assert np.isnan(session.train_step(**given).metrics["generator"])
        with opened(tmp_path, f"net{number}", text) as session:
            found = session.find_nonfinite(**given)
            assert found is not None and found.op == "log"


def test_each_update_has_its_programs_and_slots(tmp_path: Path) -> None:
    checked = check_program(files(HEAD + STEPS.format(CRITIC, OTHER, more="accumulate = 3", end="")))
    titles = [entry for entry, _ in entry_sizes(checked, Options())]
    assert [t for t in titles if "step" in t and "eval" not in t] == [
        "accumulate_step", "train_step", "accumulate_step.generator", "train_step.generator",
    ]  # fmt: skip
    for title, own in (("accumulate_step", JUDGE), ("train_step.generator", MAKER)):
        program, _ = compile_entry(checked, title, {"B": 4}, Options(), after="autodiff")
        slots = {i.name for i in program.graph.inputs if i.kind.value == "optimizer"}
        assert slots and all(name.startswith(own) for name in slots) and program.title == title
        written = {i.name for i, _ in program.graph.updates}
        assert any("running_mean" in name or "centre" in name for name in written) == (own == JUDGE)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize(("more", "end"), [("accumulate = 3", ""), ("", "mesh { shards = 4 }")])
def test_plans_for_a_gpu(more: str, end: str, precision: str) -> None:
    checked = check_program(files(HEAD + STEPS.format(CRITIC, OTHER, more=more, end=end)))
    options = Options(target="sm_90", precision=precision, sizes={"train": {"B": (16,)}})
    listed = [(e, s) for e, s in entry_sizes(checked, options) if e.startswith(("accumulate", "train", "update"))]
    assert len(listed) == 4
    for entry, sizes in listed:  # each pass verifies its program
        program, _ = compile_entry(checked, entry, sizes, options)
        assert program.memory is not None and program.title == entry


def test_f16_is_refused() -> None:
    checked = check_program(files(HEAD + STEPS.format(CRITIC, OTHER, more="accumulate = 3", end="")))
    with pytest.raises(DslcError) as caught:
        compile_entry(checked, "train_step", {"B": 4}, Options(target="sm_90", precision="f16"))
    assert caught.value.code == "E0602" and "`critic` is made before" in caught.value.message
    assert "bf16" in str(caught.value.help)
