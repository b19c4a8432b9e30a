"""What ``predict`` reads prepared is that of the weights as they are now, whatever changed them, on every device."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.fixtures import machine
from fake_gpu.gpu_model import Kernels, moved_to_gpu
from interruption.interrupts import count, strike

import dslc
from dslc.base.errors import InputError
from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ops import registry
from dslc.compiler.options import Options
from dslc.runtime.artifact.file import Artifact, read_artifact
from dslc.runtime.session.load import load
from dslc.runtime.session.measure import measure, program_of, random_inputs, time_kernels
from dslc.runtime.session.open import session_needs
from dslc.runtime.session.session import Session

__all__ = ["machine"]

MODEL = """nn 1
dim B in 1..8 = 4
model Net(x: [B, 6]) -> [B, 3] {
  param mix: [6, 6] = normal(1.0)
  state last: [B, 6] = 0
  last = x
  return (x + last) @ softmax(mix) |> linear(3) as b
}
train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  optimizer = adamw(lr=0.1)
  ema       = 0.5
}
"""
X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
LABEL = np.arange(4, dtype=np.int32) % 3


def built(folder: Path, **options: Any) -> Path:
    (folder / "net.nn").write_text(MODEL)
    path = folder / "net.dslc"
    given = Options(provider="reference", sizes={"train": {"B": (4,)}, "predict": {"B": (1, 4)}})
    path.write_bytes(pipeline.build(check_file(folder / "net.nn"), replace(given, **options)).artifact)
    return path


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("prepared"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("plain"), prepare="never")


def changes(session: Session, folder: Path) -> dict[str, Callable[[], object]]:
    """Each way to change the weights."""
    step, weights, state = folder / "step.safetensors", folder / "w.safetensors", session.state_tensors()
    session.save_checkpoint(step)
    session.weights.save(weights)
    batch = {"x": X, "label": LABEL}
    training = program_of(session, "train_step", {})
    return {
        "train_step": lambda: session.train_step(**batch),
        "train_steps": lambda: session.train_steps([batch, batch]),
        "weights[name]": lambda: session.weights.__setitem__("mix", session.weights["mix"] * 2),
        "initialise": lambda: session.initialise(3),
        "weights.load": lambda: session.weights.load(weights),
        "restore": lambda: session.restore({name: value * 2 for name, value in state.items()}, 9),
        "load_checkpoint": lambda: session.load_checkpoint(step),
        "find_nonfinite": lambda: session.find_nonfinite(**batch),
        "measure": lambda: measure(session, training, random_inputs(session, training), 1),
    }


def test_each_change_of_the_weights_counts(net: Path, plain: Path, tmp_path: Path) -> None:
    """The bits are those of an artifact that prepares nothing, with the same weights."""
    with dslc.load(net, weights="init") as session, dslc.load(plain, weights="init") as other:
        assert "prepare" in session._programs and "prepare" not in other._programs
        before = session.predict(x=X)
        for name, change in changes(session, tmp_path).items():
            change()
            for weight in session.weights:
                other.weights[weight] = session.weights[weight]
            after = session.predict(x=X)
            assert after.tobytes() == other.predict(x=X).tobytes(), name
            assert name == "measure" or not np.array_equal(after, before), f"{name} changed nothing"
            assert session.predict(x=X[:1]).tobytes() == other.predict(x=X[:1]).tobytes()  # another size
            before = after


def test_it_runs_once_after_a_change(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with dslc.load(net, weights="init", contexts=2) as session:
        runs = []
        [program] = session._programs["prepare"]
        for context in session._pool._all:
            bound = context._bound[program]
            monkeypatch.setattr(bound, "run", lambda real=bound.run: (runs.append(1), real())[1])
        stream = session.stream()
        for _ in range(3):
            session.predict(x=X), session.predict(x=X[:1]), stream.predict(x=X)
        assert len(runs) == 1
        session.train_step(x=X, label=LABEL)
        session.evaluate(x=X, label=LABEL)
        assert len(runs) == 1, "evaluation reads nothing prepared"
        one = session.stream().predict(x=X)
        assert len(runs) == 2 and one.tobytes() == session.predict(x=X).tobytes()
        measure(session, program_of(session, "predict", {}), {"x": X}, 1)
        assert len(runs) == 2


def test_measuring_prepares(net: Path) -> None:
    for measuring in (measure, time_kernels):
        with dslc.load(net, weights="init") as session:
            measuring(session, program_of(session, "predict", {}), {"x": X}, 1)
            assert session._state.prepared


@pytest.mark.parametrize("opcodes", [False, True])
def test_an_interrupt_leaves_nothing_half_prepared(net: Path, opcodes: bool) -> None:
    """At points of a ``predict`` that prepares: the next call has the bits of the weights that the session has."""
    with dslc.load(net, weights="init") as session:
        wanted = session.predict(x=X).tobytes()
        prepared = session._pool.any._bound[session._programs["prepare"][0]]._given[0]["prepared"]

        def afresh() -> bytes:
            session._state.prepared = False
            prepared[:] = 255  # nan
            return session.predict(x=X).tobytes()

        points = count(afresh, opcodes=opcodes)
        for number in np.linspace(1, points, 25).astype(int):
            strike(afresh, int(number), opcodes=opcodes)
            assert session.predict(x=X).tobytes() == wanted
        assert not session._pool._turns.holders


def test_threads_share_it(net: Path, plain: Path) -> None:
    """Threads predict while another one sets weights: each result is that of one of the weights."""
    with dslc.load(net, weights="init", contexts=3) as session, dslc.load(plain, weights="init") as other:
        values = [session.weights["mix"] + n for n in (0, np.arange(6, dtype=np.float32) / 9)]
        allowed = set()
        for value in values:
            other.weights["mix"] = value
            allowed.add(other.predict(x=X).tobytes())
        assert len(allowed) == 2
        found: list[set[bytes]] = [set(), set(), set()]
        ready = threading.Barrier(4)

        def work(number: int) -> None:
            ready.wait()
            found[number] = {session.predict(x=X).tobytes() for _ in range(40)}

        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        ready.wait()
        for turn in range(20):
            session.weights["mix"] = values[turn % 2]
        for thread in threads:
            thread.join()
        assert set().union(*found) <= allowed


def test_sessions_have_their_own(net: Path) -> None:
    with dslc.load(net, weights="init") as one, dslc.load(net, weights="init") as other:
        before = one.predict(x=X)
        other.weights["mix"] = other.weights["mix"] * 2 + np.eye(6, dtype=np.float32)
        assert not np.array_equal(other.predict(x=X), before)
        assert np.array_equal(one.predict(x=X), before)


def test_only_sessions_that_predict_take_its_memory(net: Path, plain: Path) -> None:
    artifact = read_artifact(net)
    [program] = artifact.programs("prepare")
    assert program.prepared_bytes > 0 and program.sizes == {"B": 4}
    others = {p.entry for p in artifact.all_programs() if p.prepared_bytes}
    assert others == {"prepare", "predict"}
    needs, without = (session_needs(read_artifact(path))["cpu"] for path in (net, plain))
    assert needs["train"] == without["train"]
    assert without["predict"] < needs["predict"] <= without["predict"] + program.prepared_bytes
    with dslc.load(net, weights="init", calls=("train_step", "evaluate")) as session:
        assert "prepare" not in session._programs
        session.train_step(x=X, label=LABEL)
        with pytest.raises(InputError, match="other calls"):
            session.predict(x=X)
    with dslc.load(net, weights="init", calls=("predict",)) as session:
        assert session.predict(x=X).shape == (4, 3)


def test_on_a_gpu(net: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The bits of the CPU, in any order in which the device may run what is asynchronous."""
    start: Callable[..., FakeDriver] = request.getfixturevalue("machine")
    path, kernels = tmp_path / "net.dslc", Kernels(registry.meanings())
    path.write_bytes(moved_to_gpu(Artifact.of_bytes(net.read_bytes()), kernels))
    start(**kernels.driver(seed=3))
    given: dict[str, Any] = {"weights": "init", "seed": 5, "meanings": registry.meanings}
    with load(path, device="gpu", contexts=2, **given) as gpu, load(path, device="cpu", **given) as cpu:
        streams = gpu.stream(), gpu.stream()  # of both contexts
        for _ in range(3):
            for stream in streams:
                assert stream.predict(x=X).shape == (4, 3)
            assert gpu.predict(x=X).tobytes() == cpu.predict(x=X).tobytes()
            for session in (gpu, cpu):
                session.train_steps([{"x": X, "label": LABEL}] * 2)
            assert streams[1].predict(x=X) is not None
            assert gpu.predict(x=X).tobytes() == cpu.predict(x=X).tobytes()
