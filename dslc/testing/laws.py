"""The laws of ops, over the examples on the pages of a package's functions.

- the numpy meaning has the types that the op infers;
- kernels give what the meaning gives, for random and for special values, on the CPU and on a GPU if one is there;
- a second run gives the same bits;
- the gradient of the kernels is the central difference of the meaning in f64;
- the kernels compile for a GPU, if the compiler of CUDA C++ is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.base.errors import EnvironmentFault
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.packages.find import package_or_error
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build
from dslc.face import load
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.cuda.device import devices
from dslc.testing.cases import STEP, Case, cases
from dslc.testing.values import Array, WrongType, difference, feeds, meant

if TYPE_CHECKING:
    from dslc.runtime.session.session import Session

_COMPILED_FOR: Final = "sm_90"  # without a GPU
_STEP: Final = 1e-6  # of central differences in f64
_GRADIENT: Final = 1e-3  # relative error of an f32 gradient against differences


@dataclass(frozen=True)
class Broken:
    """A law that does not hold. ``device``: cpu, or gpu:0; ``why``: the difference."""

    function: str
    example: str
    law: str
    device: str
    why: str

    def __str__(self) -> str:
        return f"{self.function}, {self.example}: {self.law} on {self.device}: {self.why}"


def check_package(entry: str, seed: int = 0) -> list[Broken]:
    """The laws that the package of an entry point breaks; empty if all hold.

    A function whose class says ``surrogate = True`` is not compared with differences. Raises DslcError E0115 for a
    package that cannot be used, and the errors of an example that does not compile.
    """
    package = package_or_error(entry)
    gpus = devices()
    found: list[Broken] = []
    with TemporaryDirectory(prefix="dslc-laws-") as folder:
        for case in cases(package, Path(folder)):
            target = gpus[0].target if gpus else _COMPILED_FOR
            wrong = _wrong_type(case)
            if wrong is not None:
                found.append(Broken(case.function, case.shown, "the types of the meaning", "numpy", wrong))
                continue
            surrogate = package.functions[case.function].surrogate
            for device, session in _sessions(case, Path(folder), target, bool(gpus)):
                with session:
                    found += [Broken(case.function, case.shown, law, device, why)
                              for law, why in _broken(case, session, seed, surrogate)]  # fmt: skip
    return found


def _sessions(case: Case, folder: Path, target: str, gpu: bool) -> Iterator[tuple[str, Session]]:
    """The case's model on each device of this machine."""
    try:
        made = build(case.checked, Options(target=f"cpu,{target}"))
    except EnvironmentFault as error:
        if error.code != "R205" or gpu:
            raise
        made = build(case.checked, Options())
    path = folder / "law.dslc"
    path.write_bytes(made.artifact)
    for device in ("cpu", *(["gpu:0"] if gpu else [])):
        yield device, load(path, device=device, weights="init")


def _inputs(case: Case, seed: int) -> dict[str, Array]:
    """Random inputs: floats from -2 to 2, ints that the model takes."""
    rng = np.random.default_rng(seed)
    ranges: dict[Value, Any] = {}
    for node in case.checked.graph.nodes:
        for number, value in enumerate(node.inputs):
            ranges.setdefault(value, node.op.index_range(node, number))
    found: dict[str, Array] = {}
    for each in case.checked.model_inputs:
        type = each.value.type.bind({dim.name: dim.default for dim in case.checked.dims})
        if type.dtype.is_float:
            found[each.name] = np.asarray(rng.uniform(-2, 2, type.ints), np.float32)
        else:
            low, end = ranges.get(each.value) or (0, 2 if type.dtype is DType.B1 else 4)
            found[each.name] = rng.integers(low, int(str(end)), type.ints).astype(numpy_dtype(type.dtype.value))
    return found


def _wrong_type(case: Case) -> str | None:
    """Why the meanings of own ops do not fit the types that these infer."""
    zeros = {name: np.zeros(each.input.value.type.ints, np.float32) for name, each in case.checked.params.items()}
    for dtype in (DType.F32, DType.F64):
        try:
            meant(case.checked, "result.", {**zeros, **_inputs(case, 0)}, dtype)
        except WrongType as error:
            return str(error)
    return None


def _broken(case: Case, session: Session, seed: int, surrogate: bool) -> Iterator[tuple[str, str]]:
    plain, state = _inputs(case, seed), _state(case, session)
    for title, arrays in [("random values", plain), *feeds(plain)]:
        given: dict[str, Any] = {**arrays}
        found, again = (np.asarray(session.predict(**given)) for _ in range(2))
        wrong = difference(found, meant(case.checked, "result.", {**state, **arrays}, DType.F32))
        if wrong is not None:
            yield f"kernel against meaning, {title}", wrong
        if found.tobytes() != again.tobytes():
            yield f"the same bits again, {title}", "another run gives other bits"
    if case.checked.train is not None and not surrogate:
        yield from _gradients(case, session, {**state, **plain}, plain, seed)


def _state(case: Case, session: Session) -> dict[str, Array]:
    """The parameters as they are now."""
    held = session.state_tensors()
    return {name: np.array(held[name]) for name in case.checked.params}


def _gradients(
    case: Case, session: Session, arrays: dict[str, Array], plain: dict[str, Array], seed: int
) -> Iterator[tuple[str, str]]:
    """By how much one step moves the parameters, which is their gradient, against differences of the meaning."""
    result = meant(case.checked, "result.", arrays, DType.F64)
    slope = np.asarray(np.random.default_rng(seed + 1).uniform(0.5, 1.5, result.shape), np.float32)
    given: dict[str, Any] = {**plain, "slope": slope}
    session.train_step(**given)
    for name, after in _state(case, session).items():
        before = arrays[name].astype(np.float64)
        wanted = np.zeros(before.shape)
        for place in np.ndindex(wanted.shape):
            sums = []
            for step in (_STEP, -_STEP):
                moved = before.copy()
                moved[place] += step
                sums.append(float(np.sum(slope * meant(case.checked, "result.", {**arrays, name: moved}, DType.F64))))
            wanted[place] = (sums[0] - sums[1]) / (2 * _STEP)
        wrong = difference(before - after, wanted, _GRADIENT, 1e-5)
        if wrong is not None:
            yield f"the gradient of {name.removesuffix(STEP)} against differences", wrong
