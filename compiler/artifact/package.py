"""Generates the Python module next to an artifact, so that ``import lenet; lenet.predict(image=x)`` works, and its
stub.

Both are constant templates. Inserted are only the digest of the interface, and names that are checked to be plain
identifiers; no other text of the model reaches them. ``dslc.face.Importable`` implements the module's functions.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dslc.base.errors import BuildError
from dslc.base.module_name import IDENTIFIER, module_name_problem

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_SIZE: Final = re.compile(r"[A-Za-z0-9_+\-*/() ]{1,400}")
#: Options of the calls; an input with such a name could not be passed.
_TAKEN: Final = frozenset({"self", "step", "row", "lr"})
_SCALAR: Final[Mapping[str, str]] = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "uint16", "i64": "int64", "i32": "int32",
    "i16": "int16", "i8": "int8", "u64": "uint64",
    "u32": "uint32", "u16": "uint16", "u8": "uint8", "b1": "bool_",
}  # fmt: skip

_MODULE: Final = '''"""Written by `dslc build`; changes are lost at the next build."""

from dslc.face import Importable as _Importable

_artifact = _Importable(__file__, "{name}", "{digest}")
predict = _artifact.predict
session = _artifact.session
'''

_STUB: Final = '''"""Written by `dslc build`; changes are lost at the next build."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import dslc
{results_class}
def predict(*, {inputs}step: int = ..., row: int = ...) -> {results}:
    """{described}"""

class _Session(dslc.Session):
    def predict(self, /, *, {inputs}step: int = ..., row: int = ...) -> {results}: ...  # type: ignore[override]
{train}
def session(
    *,
    device: str = ...,
    weights: str | os.PathLike[str] | None = ...,
    seed: int = ...,
    contexts: int = ...,
    verify: str = ...,
    digest: str | None = ...,
    bulk: int | str | None = ...,
    steps_per_launch: int | None = ...,
    calls: Sequence[str] | None = ...,
) -> _Session: ...
'''

_TRAIN: Final = """    def train_step(  # type: ignore[override]
        self, /, *, {inputs}lr: float | None = ..., row: int | None = ...
    ) -> dslc.StepResult: ...
    def evaluate(  # type: ignore[override]
        self, /, *, {inputs}step: int = ...
    ) -> dslc.EvalResult: ...
"""


def check_artifact_name(name: str) -> None:
    """Raise BuildError E0604 for a name that cannot be imported, or that would hide another module."""
    problem = module_name_problem(name)
    if problem is not None:
        raise BuildError("E0604", f"`{name[:80]}` {problem}", place="--name", help="choose another with --name")


def face_files(header: Mapping[str, Any]) -> dict[str, str]:
    """``__init__.py`` and ``__init__.pyi`` for an artifact's header (its interface must have been checked).

    Raises BuildError E0604 for a name that is not an identifier or is an option of the calls.
    """
    interface, digest = header["interface"], header["interface_sha256"]
    name = interface["name"]
    check_artifact_name(name)
    if not _DIGEST.fullmatch(digest):
        raise AssertionError(f"not a SHA-256: {digest!r}")
    return {
        "__init__.py": _MODULE.format(name=name, digest=digest),
        "__init__.pyi": _stub(interface),
    }


def _stub(interface: Mapping[str, Any]) -> str:
    results, train = interface["results"], interface["train"]
    inputs = _parameters(interface["inputs"])
    results_class = ""
    if len(results) == 1:
        results_type = _array(results[0])
    else:
        _check_identifier(interface["model"], "model")
        results_type = f"_{interface['model']}Results"
        fields = []
        for result in results:
            _check_identifier(result["name"], "result")
            if result["name"].startswith("_"):
                raise _bad_name(result["name"], "result")
            fields.append(f"    {result['name']}: {_array(result)}\n")
        results_class = f"\nclass {results_type}(NamedTuple):\n{''.join(fields)}"
    train_text = ""
    if train is not None:
        scalars = []
        for scalar in train["scalars"]:
            _check_argument(scalar["name"])
            scalars.append(f"{scalar['name']}: float = ..., ")
        train_text = _TRAIN.format(inputs=inputs + _parameters(train["inputs"]) + "".join(scalars))
    described = ", ".join(f"{t['name']}: {_shape(t)}" for t in interface["inputs"])
    given = ", ".join(_shape(r) for r in results)
    return _STUB.format(
        results_class=results_class,
        inputs=inputs,
        results=results_type,
        described=f"{described} -> {given}",
        train=train_text,
    )


def _parameters(tensors: Sequence[Mapping[str, Any]]) -> str:
    for tensor in tensors:
        _check_argument(tensor["name"])
    return "".join(f"{t['name']}: {_array(t)}, " for t in tensors)


def _array(tensor: Mapping[str, Any]) -> str:
    return f"NDArray[np.{_SCALAR[tensor['dtype']]}]"


def _shape(tensor: Mapping[str, Any]) -> str:
    for size in tensor["shape"]:
        if not isinstance(size, int) and not _SIZE.fullmatch(size):
            raise AssertionError(f"not a size: {size!r}")
    return f"{tensor['dtype']}[{', '.join(map(str, tensor['shape']))}]"


def _check_argument(name: str) -> None:
    _check_identifier(name, "input")
    if name in _TAKEN:
        raise _bad_name(name, "input")


def _check_identifier(name: str, what: str) -> None:
    if not IDENTIFIER.fullmatch(name) or keyword.iskeyword(name) or name.startswith("__"):
        raise _bad_name(name, what)


def _bad_name(name: str, what: str) -> BuildError:
    return BuildError(
        "E0604",
        f"{name[:80]!r} cannot be the name of an {what}"
        if what[0] in "aio"
        else f"{name[:80]!r} cannot be the name of a {what}",
        place=what,
        help="use letters, digits and `_`, no Python keyword, and none of " + ", ".join(sorted(_TAKEN)),
    )
