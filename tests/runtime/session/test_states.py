"""States that a model carries from call to call: the bits of the same model whose states are inputs and results."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from states.recurrent import CARRIED, TRAIN, WRITTEN, data, opened, start, states_after

from dslc.base.errors import ArtifactError, DslcError, InputError
from dslc.runtime.artifact.reserved import OF_STATE

PROVIDERS = ["reference", pytest.param("own", marks=pytest.mark.slow)]


def equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(one[n].tobytes() == other[n].tobytes() for n in one)


def of_written(states: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The states of the carrying model, by its names."""
    return {"both.last": states["last"], "h": np.stack([states["h0"], states["h1"]]),
            "steps": states["steps"].reshape(())}  # fmt: skip


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_has_the_bits_of_the_model_written_out(tmp_path: Path, provider: str) -> None:
    with (
        opened(tmp_path, CARRIED, provider=provider) as one,
        opened(tmp_path, WRITTEN, "written", provider=provider) as other,
    ):
        for name in one.weights:
            other.weights[name] = one.weights[name]
        stream, states = one.stream(), start(2)
        for step in range(4):
            x = data(2, step, time=(5, 1)[step % 2])["x"]  # sizes that share the states
            wanted = other.predict(x=x, **states)
            states = states_after(wanted)
            output, first = stream.predict(x=x)
            assert np.array_equal(output, wanted.output) and np.array_equal(first, wanted.first)
            assert equal(stream.state, of_written(states))
        assert np.array_equal(one.predict(x=x).output, other.predict(x=x, **start(2)).output)  # begins again
        assert equal(stream.state, of_written(states))
        stream.state = of_written(start(2))
        assert np.array_equal(stream.predict(x=x).output, one.predict(x=x).output)


def test_rows_are_cut_and_filled_up_as_without_states(tmp_path: Path) -> None:
    with opened(tmp_path, CARRIED) as session:
        x = data(7)["x"]
        output = session.predict(x=x).output
        assert output.shape == (7, 4)
        for rows in (slice(0, 4), slice(4, 6), slice(5, 7)):
            assert np.array_equal(session.predict(x=x[rows]).output, output[rows])


def test_streams_share_contexts_and_keep_their_states(tmp_path: Path) -> None:
    """Three streams on two contexts, with other calls between: each has the bits that it would have alone."""
    given = [[data(2, 10 * n + i)["x"] for i in range(3)] for n in range(3)]
    with opened(tmp_path, CARRIED + TRAIN, contexts=2) as session:
        alone = []
        for xs in given:
            stream = session.stream()
            alone.append([stream.predict(x=x).output for x in xs])
        streams = [session.stream() for _ in given]
        found: list[list[np.ndarray]] = [[] for _ in given]
        for step in range(3):
            session.evaluate(**data(4))
            for n, stream in enumerate(streams):
                found[n].append(stream.predict(x=given[n][step]).output)
                session.predict(x=given[0][0])
        assert all(np.array_equal(a, b) for one, other in zip(found, alone) for a, b in zip(one, other))

        streams = [session.stream() for _ in given]
        parallel: list[list[np.ndarray]] = [[] for _ in given]

        def run(n: int) -> None:
            parallel[n] += [streams[n].predict(x=x).output for x in given[n]]

        threads = [threading.Thread(target=run, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(np.array_equal(a, b) for one, other in zip(parallel, alone) for a, b in zip(one, other))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s | {"more": np.zeros(1)}, "no state `more`"),
        (lambda s: {n: v for n, v in s.items() if n != "h"}, "`h` is missing"),
        (lambda s: s | {"h": s["h"][:, :1]}, "expected f32[2, 2, 6]"),
        (lambda s: s | {"steps": np.zeros((), "i8")}, "expected i32[]"),
    ],
)
def test_states_that_do_not_fit_are_refused(tmp_path: Path, change: Any, said: str) -> None:
    with opened(tmp_path, CARRIED) as session:
        stream = session.stream()
        stream.state = change(of_written(start(2)))
        with pytest.raises(InputError, match=said.replace("[", r"\[")):
            stream.predict(x=data(2)["x"])
        stream.reset()
        assert stream.state == {}
        stream.predict(x=data(2)["x"])
        with pytest.raises(InputError, match="another"):
            stream.predict(x=data(4)["x"])
        with pytest.raises(InputError, match="B = 3"):
            stream.predict(x=data(3)["x"])


def test_an_interrupted_call_leaves_the_stream_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, CARRIED) as session:
        stream, x = session.stream(), data(2)["x"]
        wanted = stream.predict(x=x).output
        with monkeypatch.context() as patch:
            patch.setattr(type(session._calls.predict), "run", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                stream.predict(x=x)
        with pytest.raises(ArtifactError) as caught:
            stream.predict(x=x)
        assert caught.value.code == "R310"
        stream.reset()
        assert np.array_equal(stream.predict(x=x).output, wanted)


def test_a_model_without_states_has_no_stream(tmp_path: Path) -> None:
    with opened(tmp_path, WRITTEN) as session, pytest.raises(InputError, match="has no state"):
        session.stream()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_training_carries_states_and_evaluation_has_its_own(tmp_path: Path, provider: str) -> None:
    with (
        opened(tmp_path, CARRIED + TRAIN, provider=provider) as one,
        opened(tmp_path, WRITTEN + TRAIN, "written", provider=provider) as other,
    ):
        for name in one.weights:
            other.weights[name] = one.weights[name]
        states = start(4)
        for step in range(6):
            batch = data(4, step)
            if step == 4:
                one.reset_state()
                states = start(4)
            after = states_after(other.predict(x=batch["x"], **states))
            wanted = other.train_step(**batch, **states)
            states = after
            assert one.train_step(**batch) == wanted
            kept = {n[len(OF_STATE) :]: v for n, v in one.state_tensors().items() if n.startswith(OF_STATE)}
            assert equal(kept, of_written(states))
            if step % 2:
                self_made = [data(4, 20 + n) for n in range(3)]
                rows = {n: np.concatenate([b[n] for b in self_made]) for n in self_made[0]}
                found = one.evaluate(**rows)
                total, apart = 0.0, start(4)
                for each in self_made:
                    total += other.evaluate(**each, **apart).loss or 0.0
                    apart = states_after(other.predict(x=each["x"], **apart))
                assert found.loss == pytest.approx(total / 3, rel=1e-6) and found.rows == 12
                assert one.evaluate(**rows) == found


def test_rows_between_which_a_state_cannot_be_carried_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path, CARRIED + TRAIN) as session:
        with pytest.raises(InputError, match=r"state `both\.last` cannot be carried"):
            session.evaluate(**data(6))
        assert session.evaluate(**data(3)).rows == 3  # three batches of one row


def test_a_checkpoint_holds_the_states(tmp_path: Path) -> None:
    with opened(tmp_path, CARRIED + TRAIN) as session:
        for step in range(3):
            session.train_step(**data(4, step))
        session.save_checkpoint(tmp_path / "at3.safetensors")
        wanted = [session.train_step(**data(4, step)) for step in range(3, 5)]
        session.initialise(9)
        assert session.state_tensors()["train.state.steps"] == 3
        session.load_checkpoint(tmp_path / "at3.safetensors")
        assert [session.train_step(**data(4, step)) for step in range(3, 5)] == wanted
        assert session.find_nonfinite(**data(4)) is None
        assert not any("state" in name or name in ("h", "steps") for name in session.weights)
        session.weights.save(tmp_path / "weights.safetensors")
        session.weights.load(tmp_path / "weights.safetensors")  # training begins again
        session.train_step(**data(4, 0))
        assert session.state_tensors()["train.state.steps"] == 4


def test_accumulation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DslcError) as caught:
        opened(tmp_path, CARRIED + TRAIN.replace("optimizer", "accumulate = 2\n  optimizer"))
    assert caught.value.code == "E0509"


LSTM = """nn 1
dim B in 1..8 = 2
dim T in 1..16 = 12
block cell(x: [B, T, D], h0: [B, H], c0: [B, H]) -> ([B, T, H], [B, H], [B, H]) {
  param wx: [D, 4*H] = uniform(0.5)
  param wh: [H, 4*H] = uniform(0.5)
  h, c = h0, c0
  scan xt in x along T carry h, c into y {
    i, f, g, o = split(xt @ wx + h @ wh, 4)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h = sigmoid(o) * tanh(c)
    yield h
  }
  return y, h, c
}
model Net(x: [B, T, 3], d: int = 6) -> [B, T, d] {
  state h: [2, B, d] = 0
  state c: [2, B, d] = 0
  x = x |> linear(d) as embed
  for l in 0..2 as rnn { x, h[l], c[l] = cell(x, h[l], c[l]) }
  return x
}
"""


def test_a_loop_over_time_in_windows_is_the_loop_over_all(tmp_path: Path) -> None:
    with opened(tmp_path, LSTM, sizes={"predict": {"B": (2,), "T": (1, 5, 12)}}) as session:
        x = np.random.default_rng(0).standard_normal((2, 12, 3)).astype(np.float32)
        whole, stream = session.predict(x=x), session.stream()
        parts = [stream.predict(x=x[:, a:b]) for a, b in ((0, 5), (5, 6), (6, 11), (11, 12))]
        assert np.abs(np.concatenate(parts, axis=1) - whole).max() < 1e-6


def test_a_state_with_a_dtype_of_its_own_and_every_axis(tmp_path: Path) -> None:
    text = """nn 1
dim B in 1..8 = 2
model Net(x: [B, 4]) -> [B, 4] {
  state h: f16[2, B, 4] = 0.5
  y = cast(x[:, 1:3], "f16")
  h[..., 1:3] = stack([y, y])
  h[1, 0, -1] = h[0, 0, 1]
  return cast(h[0] + h[1], "float") |> linear(4)
}
"""
    with opened(tmp_path, text, sizes={"predict": {"B": (2,)}}) as session:
        stream = session.stream()
        stream.predict(x=np.full((2, 4), 2, np.float32))
        wanted = np.full((2, 2, 4), 0.5, np.float16)
        wanted[..., 1:3] = 2
        wanted[1, 0, 3] = 2
        assert stream.state["h"].dtype == np.float16 and np.array_equal(stream.state["h"], wanted)
