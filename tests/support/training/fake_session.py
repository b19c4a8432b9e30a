"""A numpy logistic regression with the methods of a Session: small, exact, and quick to start in a child process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from dslc.base.errors import InputError
from dslc.base.publish import publish_bytes
from dslc.runtime.artifact.interface import Dim, Interface, Tensor, Train
from dslc.runtime.session.results import EvalResult, StepResult
from dslc.runtime.weights import safetensors_file as tensorfile
from dslc.runtime.weights.notes import to_metadata

CLASSES = 3
FEATURES = 4
INTERFACE = Interface(
    name="toy",
    model="Toy",
    dims=(Dim("B", 1, 512, 8, True),),
    inputs=(Tensor("x", "f32", ("B", FEATURES)),),
    results=(Tensor("output", "f32", ("B", CLASSES)),),
    train=Train(
        inputs=(Tensor("label", "i32", ("B",), (0, CLASSES)),),
        scalars={"beta": 1.0},
        lr=0.1,
        metrics=("accuracy",),
    ),
)
SHAPES = {"w": (FEATURES, CLASSES), "b": (CLASSES,)}


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


class FakeWeights:
    def __init__(self, session: FakeSession) -> None:
        self.session = session
        self.notes: dict[str, str] = {}

    def __setitem__(self, name: str, value: np.ndarray) -> None:
        np.copyto(self.session.state[name], value, casting="no")

    def save(self, path: Path, notes: Mapping[str, str] | None = None) -> None:
        metadata = to_metadata({**self.notes, **(notes or {})})
        publish_bytes(path, tensorfile.encode({name: self.session.state[name] for name in SHAPES}, metadata))


class FakeSession:
    """Momentum SGD; the step's noise depends on (seed, step), as dropout's masks do. Holds every lr it was given."""

    def __init__(self, seed: int = 0, batch: int = 8, interface: Interface = INTERFACE, digest: str = "i" * 64) -> None:
        self.name = "toy"
        self.interface = interface
        self.seed = seed
        self.step = 0
        self.weights = FakeWeights(self)
        rng = np.random.Generator(np.random.Philox(key=[seed, 2**32]))
        self.state = {name: rng.standard_normal(shape).astype("f4") for name, shape in SHAPES.items()}
        self.state |= {f"{name}.momentum": np.zeros(shape, "f4") for name, shape in SHAPES.items()}
        self.rates: list[float | None] = []
        self.betas: list[float] = []
        self.seen: list[np.ndarray] = []
        self.evals: list[dict[str, Any]] = []
        self.poison: dict[int, str] = {}  # step -> what is not finite there
        self.after_step: Any = None
        tensors = [
            {"name": n, "kind": "param" if n in SHAPES else "optimizer", "dtype": "f32", "shape": list(a.shape)}
            for n, a in self.state.items()
        ]
        program, rest = (SimpleNamespace(sizes={"B": rows}) for rows in (batch, 1))  # eval takes any number
        self.artifact = SimpleNamespace(
            id="sha256:" + "a" * 64,
            header={
                "interface_sha256": digest,
                "state": {"tensors": tensors, "forward_order": list(SHAPES)},
            },
            programs=lambda entry: [rest, program] if entry == "eval_step" else [program],
        )
        self.batch = batch

    def train_step(
        self, /, *, lr: float | None = None, row: int | None = None, x: Any, label: Any, beta: float = 1.0
    ) -> StepResult:
        assert x.shape == (self.batch, FEATURES) and x.dtype == np.float32 and label.dtype == np.int32
        step, rate = self.step, np.float32(lr if lr is not None else 0.1)
        self.rates.append(lr)
        self.betas.append(beta)
        self.seen.append(x.copy())
        noise = np.random.Generator(np.random.Philox(key=[self.seed, step])).random(x.shape, dtype="f4")
        p = softmax((x * (noise > 0.1)) @ self.state["w"] + self.state["b"])
        loss = float(-np.log(p[np.arange(len(x)), label]).mean(dtype="f4"))
        accuracy = float((p.argmax(1) == label).mean())
        p[np.arange(len(x)), label] -= 1
        for name, grad in (("w", x.T @ p / len(x)), ("b", p.mean(0))):
            m = self.state[f"{name}.momentum"]
            m[...] = np.float32(0.9) * m + grad.astype("f4")
            self.state[name] -= rate * m
        self.step += 1
        bad = self.poison.get(step)
        if bad == "state":
            self.state["w"][0, 0] = np.nan
        if self.after_step is not None:
            self.after_step(step)
        return StepResult(
            float("nan") if bad == "loss" else loss, {"accuracy": accuracy}, step, bad if bad in SHAPES else None
        )

    steps_per_launch = 1

    def train_steps(self, batches: Any, /) -> list[StepResult]:
        return [self.train_step(**given) for given in batches]

    def evaluate(self, /, *, step: int = 0, x: Any, label: Any, beta: float = 1.0) -> EvalResult:
        p = softmax(x @ self.state["w"] + self.state["b"])
        loss = float(-np.log(p[np.arange(len(x)), label]).mean())
        self.evals.append({"beta": beta, "rows": len(x)})
        return EvalResult(loss, {"accuracy": float((p.argmax(1) == label).mean())}, len(x))

    def evaluate_rows(self, rows: int, read: Any, /, *, step: int = 0, beta: float = 1.0) -> EvalResult:
        """In pieces of at most 16 rows, added up."""
        spans = [(start, min(start + 16, rows)) for start in range(0, rows, 16)]
        parts = [{name: array.copy() for name, array in part.items()} for part in read(spans)]
        return self.evaluate(step=step, beta=beta, **{n: np.concatenate([p[n] for p in parts]) for n in parts[0]})

    def state_tensors(self) -> dict[str, np.ndarray]:
        return {name: array.copy() for name, array in self.state.items()}

    def restore(self, tensors: Mapping[str, np.ndarray], step: int) -> None:
        if {n: a.shape for n, a in tensors.items()} != {n: a.shape for n, a in self.state.items()}:
            raise InputError("R105", "other tensors", place="restore", help="restore a state of this model")
        for name, array in tensors.items():
            self.state[name][...] = array
        self.step = step


def write_data(folder: Path, rows: int = 50, seed: int = 5) -> None:
    """``toy.npz`` with x, y (a learnable rule) and tx, ty."""
    rng = np.random.default_rng(seed)
    rule = rng.standard_normal((FEATURES, CLASSES))
    arrays = {}
    for prefix, count in (("", rows), ("t", 21)):
        x = rng.standard_normal((count, FEATURES)).astype("f4")
        arrays[prefix + "x"] = x
        arrays[prefix + "y"] = (x @ rule).argmax(1).astype("i8")
    np.savez(folder / "toy.npz", **arrays)


YAML = """\
model: toy.nn
data:
  train: {x: toy.npz:x, label: toy.npz:y}
  eval: {x: toy.npz:tx, label: toy.npz:ty}
train: {epochs: 4, seed: 3, lr: {cosine: {warmup: 1 epoch, end: 0.1}}, schedules: {beta: {linear: {end: 0.5}}}}
save: {dir: runs/toy, every: 4 steps, keep: 2, best: accuracy}
"""


def main() -> None:
    """A training run in a process of its own: FOLDER [--resume] [--hold STEP]; exits as the command line does."""
    import sys

    from dslc.base.errors import DslcError
    from dslc.runtime.config.load import load_config
    from dslc.runtime.train.loop import train

    folder = Path(sys.argv[1])
    config = load_config(folder / "dslc.yaml")
    session = FakeSession(config.train.seed)
    if "--hold" in sys.argv:
        number = int(sys.argv[sys.argv.index("--hold") + 1])

        # Says that it is in the middle of a step, and stays there until its input ends.
        def hold(step: int) -> None:
            if step == number:
                print(f"at step {step}", flush=True)
                sys.stdin.read()

        session.after_step = hold
    try:
        result = train(config, session, folder / "build", resume="--resume" in sys.argv)
    except DslcError as error:
        print(error.render(), file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    raise SystemExit(result.exit_code)


if __name__ == "__main__":
    main()
