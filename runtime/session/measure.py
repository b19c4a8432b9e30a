"""Measures a session: the duration of its steps, their launches and bytes, and the time of each instruction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.artifact.interface import Tensor, size_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.session.backend import Bound, Measured
    from dslc.runtime.session.context import Loaded
    from dslc.runtime.session.session import Session

ENTRIES: Final = ("train_step", "predict")
_WARM: Final = 3  # steps before the measurement
_FEWEST: Final = 5
_MOST: Final = 100_000


@dataclass(frozen=True)
class Steps:
    """``times``: seconds of each step; for training, from the end of one step to the end of the next, without gaps.
    ``counted``: the GPU's work per step, on average."""

    times: tuple[float, ...]
    counted: Mapping[str, float]


def has(session: Session, entry: str) -> bool:
    """True if the artifact holds this entry."""
    return entry in session._programs


def program_of(session: Session, entry: str, sizes: Mapping[str, int]) -> Loaded:
    """The program of an entry with these sizes of dims; if there are several, the largest. ArtifactError R312."""
    listed = session._programs.get(entry, [])
    found = [p for p in listed if all(p.sizes.get(n) == v for n, v in sizes.items())]
    if not found:
        built = "; ".join(map(str, listed)) or "none"
        raise ArtifactError(
            "R312",
            f"no program {entry} for {', '.join(f'{n}={v}' for n, v in sizes.items()) or 'any size'}; built: {built}",
            place=session.name,
            help="build this size with --size, or choose a built one",
        )
    return max(found, key=lambda p: tuple(p.sizes.values()))


def random_inputs(session: Session, program: Loaded, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Random inputs for a call that runs this program: normal floats, ints in their range (else 0 and 1, u8 any)."""
    interface, training = session.interface, program.entry != "predict"
    tensors = interface.train_inputs if training else interface.inputs
    read = {port.name for each in session._programs[program.entry] for port in each.plan.inputs}
    sizes = dict(program.sizes)
    if training and interface.train is not None and interface.batch in sizes:
        sizes[interface.batch] *= interface.train.parts
    rng = np.random.default_rng(seed)
    return {t.name: _random(t, sizes, rng) for t in tensors if not training or t.name in read}


def _random(tensor: Tensor, sizes: Mapping[str, int], rng: np.random.Generator) -> NDArray[Any]:
    shape = [size_value(size, sizes) for size in tensor.shape]
    if tensor.dtype == "bf16":  # as raw bits
        return (rng.standard_normal(shape, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    dtype = numpy_dtype(tensor.dtype)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    low, high = tensor.range_at(sizes) or (0, 256 if tensor.dtype == "u8" else 2)
    return rng.integers(low, high, shape).astype(dtype)


def time_steps(session: Session, program: Loaded, inputs: Mapping[str, Any], seconds: float) -> Steps:
    """Run the program's call repeatedly for about ``seconds`` seconds. Training changes the weights."""
    call = _train if program.entry == "train_step" else _predict
    for _ in range(_WARM):
        call(session, inputs)()
    before = session.counters
    waiting = call(session, inputs)
    waiting()
    times: list[float] = []
    waiting = call(session, inputs)
    begun = last = time.perf_counter()
    while len(times) < _FEWEST or (last - begun < seconds and len(times) < _MOST):
        following = call(session, inputs)
        waiting()  # while the device runs the next step
        now = time.perf_counter()
        times.append(now - last)
        waiting, last = following, now
    waiting()
    after, count = session.counters, len(times) + 2
    return Steps(tuple(times), {name: (after[name] - before[name]) / count for name in after})


def _train(session: Session, inputs: Mapping[str, Any]) -> Callable[[], object]:
    """Starts a step; the returned function waits for its result."""
    result = session.train_step(**inputs)
    return lambda: result.loss


def _predict(session: Session, inputs: Mapping[str, Any]) -> Callable[[], object]:
    session.predict(**inputs)
    return lambda: None


def measure(session: Session, program: Loaded, inputs: Mapping[str, NDArray[Any]], rounds: int) -> Measured:
    """Time each instruction of the program alone, ``rounds`` times. Training changes the weights."""
    with _fed(session, program, inputs) as bound:
        return bound.measure(rounds)


def time_kernels(session: Session, program: Loaded, inputs: Mapping[str, NDArray[Any]], count: int) -> float:
    """The seconds of a run of ``predict``'s program without copies: of ``count``, one right after the other."""
    with _fed(session, program, inputs) as bound:
        return bound.repeat(count)


@contextmanager
def _fed(session: Session, program: Loaded, inputs: Mapping[str, NDArray[Any]]) -> Iterator[Bound]:
    """The program in a context, with its inputs; nothing else runs meanwhile."""
    interface = session.interface
    scalars: dict[str, int | float] = {"step": 0, "row": 0, "seed": 0}
    if interface.train is not None:
        scalars |= {"lr": interface.train.lr, **interface.train.scalars}
    by_row = {t.name for t in interface.train_inputs if interface.rows_of(t)}
    rows = program.sizes.get(interface.batch or "")
    micro = {name: array[:rows] if name in by_row else array for name, array in inputs.items()}
    with session._pool.exclusive() as scope, scope as context:
        if program.entry == "predict":
            session._preparation.ensure(context)
        else:
            session._state.prepared = False
        yield context.feed(program, micro, scalars)
