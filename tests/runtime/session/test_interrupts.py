"""Ctrl-C at any point of the runtime: nobody waits for ever, no session is broken, bits stay."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from interruption.interrupts import Hung, World, count, elsewhere, leaves_nothing, spread, strike

import dslc
from dslc.base.errors import ArtifactError
from dslc.base.turns import Scope
from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.face import Importable
from dslc.runtime.artifact.file import read_artifact
from dslc.runtime.session.context_pool import Pool
from dslc.runtime.session.session import Session
from dslc.runtime.session.stream import Stream

pytestmark = pytest.mark.slow

MODEL = """nn 1
dim B in 1..64 = 8
model Net(x: [B, 6]) -> [B, 3] {
  param mix: [6, 6] = normal(1.0)
  return x @ softmax(mix) |> linear(64) as a |> relu |> linear(3) as b
}
train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  metrics   { accuracy = accuracy(output, label) }
  optimizer = adamw(lr=0.01)
  ema       = 0.9
}
"""
ROWS = 70  # of predict: wide enough to wake helpers
PROVIDERS = ("own", "reference")


@pytest.fixture(scope="module", params=PROVIDERS)
def net(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    (folder / "net.nn").write_text(MODEL)
    options = Options(provider=request.param, sizes={"train": {"B": (8,)}, "predict": {"B": (1, 64)}})
    path = folder / "net.dslc"
    path.write_bytes(pipeline.build(check_file(folder / "net.nn"), options).artifact)
    return path


def rows(number: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(number)
    x = rng.standard_normal((number, 6)).astype(np.float32)
    return {"x": x, "label": (np.arange(number) % 3).astype(np.int32)}


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def session(net: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setenv("DSLC_THREADS", "3")
    monkeypatch.setattr("dslc.runtime.cpu.native._process", type(dslc.runtime.cpu.native._process)())
    with dslc.load(net, weights="init") as session:
        session.train_step(**rows(8))
        yield session


def calls(session: Session, folder: Path) -> dict[str, Callable[[], Any]]:
    """Each call of a session. What it is given lies in ``folder``."""
    step, weights, state = folder / "step.safetensors", folder / "w.safetensors", session.state_tensors()
    session.save_checkpoint(step)
    session.weights.save(weights)
    first = next(iter(session.weights))
    return {
        "predict": lambda: session.predict(x=rows(ROWS)["x"]),
        "train_step": lambda: session.train_step(**rows(8)),
        "train_steps": lambda: session.train_steps([rows(8), rows(8)]),
        "evaluate": lambda: session.evaluate(**rows(ROWS)),
        "weights.save": lambda: session.weights.save(folder / "new.safetensors"),
        "weights.load": lambda: session.weights.load(weights),
        "weights[name]": lambda: session.weights.__setitem__(first, session.weights[first] + 1),
        "save_checkpoint": lambda: session.save_checkpoint(folder / "new.safetensors"),
        "load_checkpoint": lambda: session.load_checkpoint(step),
        "restore": lambda: session.restore({name: value + 1 for name, value in state.items()}, 9),
        "initialise": lambda: session.initialise(3),
        "find_nonfinite": lambda: session.find_nonfinite(**rows(8)),
    }


@pytest.mark.parametrize("opcodes", [False, True], ids=["lines", "opcodes"])
def test_an_interrupt_at_any_point_of_a_call(session: Session, tmp_path: Path, opcodes: bool) -> None:
    world = World(session, {"x": rows(9)["x"]}, lambda: (handles(), len(session._pool._turns.holders)))
    found = {}
    for name, call in calls(session, tmp_path).items():
        halfway = partial(session.train_step, **rows(8)) if name == "train_steps" else None
        found[name] = world.sweep(call, spread(12 if opcodes else 30), opcodes=opcodes, halfway=halfway)
    print(f"{world.struck} interrupts, {world.torn} torn, of {found}")
    assert not world.broken, "\n".join(world.broken)
    assert world.struck >= 120 and world.torn < world.struck // 2


@pytest.mark.parametrize("opcodes", [False, True], ids=["lines", "opcodes"])
@pytest.mark.parametrize("weights", ["init", "file"])
def test_an_interrupt_of_load_leaves_nothing(
    net: Path, weights: str, opcodes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSLC_THREADS", "1")  # a helper thread stays, asleep, as long as the process
    path = tmp_path / net.name
    path.write_bytes(net.read_bytes())
    with dslc.load(net, weights="init") as session:
        session.weights.save(path.with_suffix(".safetensors"))

    def call() -> bytes:
        with dslc.load(path, weights="init" if weights == "init" else None) as session:
            return session.predict(x=rows(2)["x"]).tobytes()

    leaves_nothing(call, tmp_path, spread(12 if opcodes else 20), least=3000 if opcodes else 1000, opcodes=opcodes)


@pytest.mark.parametrize("opcodes", [False, True], ids=["lines", "opcodes"])
def test_every_point_of_the_pool(opcodes: bool) -> None:
    """All points of it, not a draw: a session that does nothing but lend its contexts."""
    for contexts in (1, 3):
        pool = Pool(list(range(contexts)))
        for lend in (pool.shared, pool.exclusive):

            def call(lend: Callable[[], Scope[int]] = lend) -> None:
                with lend() as scope, scope:
                    pass

            points = count(call, opcodes=opcodes)
            assert points >= 20
            for number in range(1, points + 1):
                found = strike(call, number, opcodes=opcodes)
                assert found.struck is not None and not pool._turns.holders, found.struck
                elsewhere(call)


def test_one_scope_alone_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without the outer scope's release some points leave a context taken."""
    monkeypatch.setattr(Scope, "__exit__", lambda *_: None)
    left = 0

    def call(pool: Pool[int]) -> None:
        with pool.shared() as scope, scope:
            pass

    for number in range(1, count(lambda: call(Pool([0]))) + 1):
        pool = Pool([0])
        strike(lambda pool=pool: call(pool), number)  # type: ignore[misc]
        left += bool(pool._turns.holders)
    assert left >= 3


@pytest.mark.parametrize("opcodes", [False, True], ids=["lines", "opcodes"])
def test_an_interrupt_of_the_first_call_of_a_module(net: Path, opcodes: bool) -> None:
    """Its lock is free, and the next call of any thread answers."""
    digest = read_artifact(net).header["interface_sha256"]
    weights = net.with_suffix(".safetensors")
    with dslc.load(net, weights="init") as session:
        session.weights.save(weights)
        expected = session.predict(x=rows(2)["x"]).tobytes()

    def module() -> Importable:
        return Importable(str(net.parent / "__init__.py"), net.stem, digest)

    def call(one: Importable) -> bytes:
        return one.predict(x=rows(2)["x"]).tobytes()

    assert call(module()) == expected
    points = count(lambda: call(module()), opcodes=opcodes)
    ends = range(max(1, points - 60), points + 1)  # where the session was made and is noted
    struck = 0
    for number in {*spread(15)(points), *(ends if not opcodes else ())}:
        one = module()
        found = strike(lambda one=one: call(one), number, opcodes=opcodes)  # type: ignore[misc]
        struck += found.struck is not None
        assert not one._turn._turns.holders, found.struck
        assert elsewhere(lambda one=one: call(one)) == expected, found.struck  # type: ignore[misc]
    weights.unlink()
    assert struck >= 10 and points >= (3000 if opcodes else 1000)


def test_the_end_of_the_first_call_holds_its_lock_no_more(net: Path) -> None:
    """Every point of the module's own code, with a session that is there at once."""
    digest = read_artifact(net).header["interface_sha256"]
    with dslc.load(net, weights="init") as session:

        def call(one: Importable) -> None:
            one.session = lambda **_: session  # type: ignore[method-assign,assignment,misc]
            one.predict(x=rows(2)["x"])

        def module() -> Importable:
            return Importable(str(net.parent / "__init__.py"), net.stem, digest)

        points = count(lambda: call(module()))
        assert points >= 200
        struck = set()
        for number in range(1, points + 1):
            one = module()
            found = strike(lambda one=one: call(one), number)  # type: ignore[misc]
            struck.add(str(found.struck).split(":")[0])
            one._default = None  # so that the next call takes the lock again
            elsewhere(lambda one=one: call(one), 5.0)  # type: ignore[misc]
        assert "face.py" in struck


def test_a_lock_of_the_first_call_that_stays_would_be_seen(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without the outer scope's release an interrupt leaves the lock taken, and the next call waits."""
    monkeypatch.setattr(Scope, "__exit__", lambda *_: None)
    session = SimpleNamespace(has_weights=True, predict=lambda **_: None)

    def module() -> Importable:
        one = Importable(str(net.parent / "__init__.py"), net.stem, "")
        one.session = lambda **_: session  # type: ignore[method-assign,assignment,misc]
        return one

    for number in range(1, count(lambda: module().predict()) + 1):
        one = module()
        strike(lambda one=one: one.predict(), number)  # type: ignore[misc]
        if one._turn._turns.holders:
            break
    one._default = None
    with pytest.raises(Hung):
        elsewhere(one.predict, 0.2)
    one._turn._turns.holders.clear()  # lets the thread go that waits


STATES = """nn 1
dim B in 1..8 = 2
model Net(x: [B, 6]) -> [B, 3] {
  state h: [B, 6] = 0
  state seen: i32[] = 0
  h = tanh(x + h @ eye(6))
  seen = seen + 1
  return h |> linear(3) as a
}
"""


@pytest.mark.parametrize("opcodes", [False, True], ids=["lines", "opcodes"])
def test_an_interrupt_of_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opcodes: bool) -> None:
    """Its states are those before or after the call, or it says that they are torn, until it is reset. Two streams
    share a context, so that each call moves the other one's states."""
    (tmp_path / "net.nn").write_text(STATES)
    path = tmp_path / "net.dslc"
    path.write_bytes(pipeline.build(check_file(tmp_path / "net.nn"), Options(provider="reference")).artifact)
    monkeypatch.setenv("DSLC_THREADS", "1")
    x = {"x": rows(2)["x"]}
    struck, torn, broken = 0, 0, list[str]()
    with dslc.load(path, weights="init", contexts=1) as session:
        stream, other = session.stream(), session.stream()
        begin = {"h": np.full((2, 6), 0.5, np.float32), "seen": np.array(3, np.int32)}

        def seen(of: Stream) -> tuple[bytes, ...]:
            return tuple(value.tobytes() for _, value in sorted(of.state.items()))

        def prepare(order: int = 0) -> None:
            """The context has the states of either."""
            for each in (stream, other) if order else (other, stream):
                each.reset()
                each.state = begin
                each.predict(**x)

        calls = {
            "predict": lambda: stream.predict(**x),
            "predict again": lambda: (stream.predict(**x), stream.predict(**x)),
            "reset": lambda: stream.reset(),
            "state = ": lambda: setattr(stream, "state", begin),
            "state": lambda: stream.state,
            "the other's predict": lambda: other.predict(**x),
        }
        for name, call in calls.items():
            prepare()
            possible = [seen(stream)]
            call()
            possible.append(seen(stream))
            if name == "predict again":
                prepare()
                stream.predict(**x)
                possible.append(seen(stream))
            points = count(call, opcodes=opcodes)
            for number, order in product(spread(30 if opcodes else 60)(points), (0, 1)):
                prepare(order)
                where = strike(call, number, opcodes=opcodes).struck
                struck += where is not None
                found = elsewhere(partial(seen, stream))
                if isinstance(found, ArtifactError) and found.code == "R310" and name != "the other's predict":
                    with pytest.raises(ArtifactError) as refused:
                        stream.predict(**x)
                    assert refused.value.code == "R310"
                    torn += 1
                elif found not in possible:
                    broken.append(f"{name}: {found!r:.90} after {where}")
                stream.reset()
                assert stream.state == {}
    assert not broken, f"{len(broken)} of {struck}:\n" + "\n".join(broken[:12])
    assert struck >= 100 and torn < struck / 2
