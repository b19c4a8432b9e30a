"""Several updates of a training step: each loss sees the parameters that earlier updates have changed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from places import MODELS
from sources.in_memory import files

import dslc
from dslc.compiler.check.model import Checked, check_file, check_program
from dslc.compiler.check.selection import Selection
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build, compile_entry

TEXT = (MODELS / "gan.nn").read_text(encoding="utf-8")
HEAD = TEXT[: TEXT.index("train GAN()")]
#: What PyTorch 2.15 computes in f64 from these inputs and initial values: both losses of three steps.
TORCH = [
    (1.3761495565137287, 0.5116378583983584),
    (1.3434425395014347, 0.515361141723343),
    (1.362566043158065, 0.5217577496396094),
]


def batches(count: int) -> list[dict[str, NDArray[np.float64]]]:
    rng = np.random.default_rng(0)
    return [{"real": rng.normal(size=(32, 2)), "z": rng.normal(size=(32, 4))} for _ in range(count)]


def session(checked: Checked, folder: Path, name: str, **options: Any) -> Any:
    path = folder / f"{name}.dslc"
    path.write_bytes(build(checked, Options(**options)).artifact)
    return dslc.load(path, device="cpu", weights="init", seed=3)


@pytest.mark.parametrize("provider", ["reference", "own"])
def test_the_losses_are_those_of_pytorch(provider: str, tmp_path: Path) -> None:
    with closing(session(check_file(str(MODELS / "gan.nn")), tmp_path, "gan", provider=provider, precision="f64")) as s:
        for given, (critic, generator) in zip(batches(3), TORCH):
            found = s.train_step(**given)
            assert found.metrics["critic"] == pytest.approx(critic, rel=1e-12)
            assert found.metrics["generator"] == pytest.approx(generator, rel=1e-12)
            assert found.loss == pytest.approx(critic + generator, rel=1e-12)


@pytest.mark.parametrize("more", ["", "ema = 0.9"])
def test_a_step_equals_two_sections_that_train_in_turn(more: str, tmp_path: Path) -> None:
    """Sections with one of the losses each, whose other parameters are frozen, exchange what they train."""
    whole = TEXT.replace("metrics {", f"{more}\n  metrics {{")
    critic, generator = (
        HEAD + f"train GAN() {{ loss = {loss}; optimizer = {optimizer}\n {more} }}\n"
        for loss, optimizer in (
            ("mean(softplus(-on_real)) + mean(softplus(on_copy))", "adam(lr=0.002, betas=(0.5, 0.999))"),
            ("mean(softplus(-on_fake))", "adam(lr=0.001, betas=(0.5, 0.999), clip_norm=1.0)"),
        )
    )
    frozen = {"judge": Selection(freeze=("inner", "outer")), "inner": Selection(freeze=("judge",))}
    both = session(check_program(files(whole)), tmp_path, "both", precision="f64")
    first = session(check_program(files(critic), selection=frozen["judge"]), tmp_path, "critic", precision="f64")
    second = session(check_program(files(generator), selection=frozen["inner"]), tmp_path, "other", precision="f64")
    with closing(both), closing(first), closing(second):
        for given in batches(4):
            both.train_step(**given)
            first.train_step(**given)
            _copy(first, second, ("judge",), iterates=bool(more))
            second.train_step(**given)
            _copy(second, first, ("inner", "outer"), iterates=bool(more))
        ours, theirs = (
            both.state_tensors(),
            {**first.state_tensors(), **_of(second.state_tensors(), ("inner", "outer"))},
        )
        assert set(ours) == set(theirs)
        for name, value in ours.items():
            np.testing.assert_allclose(value, theirs[name], rtol=1e-12, atol=1e-15, err_msg=name)


def _of(state: Mapping[str, NDArray[Any]], layers: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    return {name: value for name, value in state.items() if name.startswith(layers)}


def _copy(source: Any, target: Any, layers: tuple[str, ...], iterates: bool) -> None:
    """What ``source`` trains becomes the frozen values of ``target``; of averages, the raw weights, which training
    reads."""
    given, state = _of(source.state_tensors(), layers), dict(target.state_tensors())
    for name in given:
        if name in state:
            state[name] = given[f"{name}.raw"] if iterates else given[name]
    target.restore(state, target.step)


def test_the_first_computation_is_shared(tmp_path: Path) -> None:
    """The generator runs forward once; the critic runs again with its new parameters."""
    program, _ = compile_entry(check_file(str(MODELS / "gan.nn")), "train_step", {"B": 32}, Options(), after="autodiff")
    products = [n.name for n in program.graph.nodes if n.op.name == "matmul" and n.phase.value == "forward"]
    assert products.count("inner") == 1 and sum(name.endswith(".hidden") for name in products) == 3


@pytest.mark.parametrize("options", [{}, {"precision": "bf16"}, {"precision": "f16"}, {"streams": 3}], ids=str)
def test_plans_for_a_gpu(options: dict[str, Any]) -> None:
    program, _ = compile_entry(
        check_file(str(MODELS / "gan.nn")), "train_step", {"B": 32}, Options(target="sm_90", **options)
    )
    merged = [n for n in program.graph.nodes if n.op.name == "multi_update"]
    assert len(merged) == 2 and program.memory is not None
