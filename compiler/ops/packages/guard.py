"""Calls the code of packages: an error in it becomes a diagnostic that names the package's file and line.

The methods of a package's op are replaced, on its only instance, by methods that check what they return. So a fault is
reported where it arises, and not where a later pass meets its result.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from traceback import extract_stack, extract_tb
from typing import Any, Final

from dslc.base.errors import DslcError
from dslc.base.words import reason
from dslc.compiler.ir.fault import PackageFault, Signal
from dslc.compiler.ir.function import Function
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import Cost, Mismatch, NoGradient, Op, Pointwise, broadcast
from dslc.compiler.ir.scalar import FUNCTIONS, Expr, argument
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.packages.cuda import Cuda

#: Takes the op, the arguments of the call and its result; returns why the result cannot be used.
Check = Callable[[Any, tuple[Any, ...], Any], "str | None"]


@dataclass(frozen=True)
class Owner:
    """A package: its name and version as one text, and the folders or the file of its sources."""

    title: str
    sources: tuple[Path, ...]

    def raised(self, error: BaseException) -> str:
        """``FILE:LINE`` of the innermost line of the package below which the error arose; empty if there is none."""
        frames = reversed([*extract_stack(), *extract_tb(error.__traceback__)])
        return next((f"{frame.filename}:{frame.lineno}" for frame in frames if self._has(frame.filename)), "")

    def defined(self, thing: Any) -> str:
        """``FILE:LINE`` of a class or function; empty if it is not the package's."""
        try:
            file, (_, line) = inspect.getsourcefile(thing), inspect.getsourcelines(thing)
        except (OSError, TypeError):  # code without a source file
            return ""
        return f"{file}:{line}" if file is not None and self._has(file) else ""

    def _has(self, file: str) -> bool:
        path = Path(file)
        return any(path == source or source in path.parents for source in self.sources)

    def fault(self, what: str, why: str, place: str) -> PackageFault:
        help = f"the fault is in the package {self.title}: tell its author, or use another version"
        return PackageFault(f"{what}: {why}" + (f", at {place}" if place else ""), help)


def guard_function(function: Function, owner: Owner) -> None:
    """Replaces ``build`` of a function by one that reports faults."""
    function.build = _guarded(function, "build", _build, owner, f"`{function.name}`")


def guard_op(op: Op, owner: Owner) -> None:
    """Replaces the methods of an op that the compiler calls by ones that report faults."""
    for method, check in _CHECKS.items():
        if hasattr(op, method):
            setattr(op, method, _guarded(op, method, check, owner, f"the op `{op.name}`"))


def _guarded(of: Any, method: str, check: Check, owner: Owner, title: str) -> Callable[..., Any]:
    inner = getattr(of, method)
    place = owner.defined(inner) or owner.defined(type(of))
    passing: tuple[type[BaseException], ...] = (Signal, DslcError, MemoryError, *_ANSWERS.get(method, ()))

    @wraps(inner)
    def call(*args: Any, **named: Any) -> Any:
        node = next((arg for arg in args if isinstance(arg, Node)), None)
        try:
            with redirect_stdout(sys.stderr):
                result = inner(*args, **named)
        except PackageFault as fault:
            raise fault.at(None if node is None else node.span) from fault.__cause__
        except passing:
            raise
        except Exception as error:  # the package's code may raise anything
            why = f"`{method}` raised {type(error).__name__}: {reason(error)}"
            raise owner.fault(title, why, owner.raised(error) or place).at(
                None if node is None else node.span
            ) from error
        wrong = check(of, args, result)
        if wrong is not None:
            raise owner.fault(title, f"`{method}` {wrong}", place).at(None if node is None else node.span)
        return result

    return call


def _build(function: Function, args: tuple[Any, ...], found: Any) -> str | None:
    values = found if isinstance(found, (tuple, list)) else [found]
    if values and all(isinstance(value, Value) for value in values):
        return None
    return f"returned {_named(found)}, which is no tensor"


def _infer(op: Op, args: tuple[Any, ...], found: Any) -> str | None:
    if not isinstance(found, tuple) or not found or not all(isinstance(type, TensorType) for type in found):
        return f"returned {_named(found)}, which is no tuple of TensorTypes"
    if not isinstance(op, Pointwise):
        return None
    op.scalar(args[1], *map(argument, range(op.arity)))  # so that its faults are found by `dslc check`
    return None


def _scalar(op: Pointwise, args: tuple[Any, ...], found: Any) -> str | None:
    if not isinstance(found, Expr):
        return f"returned {_named(found)}, which is no tree; `tree.as_expr` makes one of a number"
    left, seen = [found], {id(found)}
    while left:
        expr = left.pop()
        if expr.function not in ("arg", "const", *FUNCTIONS):
            return f"returned a tree with the function `{expr.function}`, which does not exist"
        for each in expr.args:
            if id(each) not in seen:
                seen.add(id(each))
                left.append(each)
    return None


def _grad(op: Op, args: tuple[Any, ...], found: Any) -> str | None:
    node: Node = args[0]
    if not isinstance(found, (tuple, list)) or len(found) != len(node.inputs):
        return f"returned {_named(found)}, not one gradient for each of {len(node.inputs)} inputs"
    for number, (value, gradient) in enumerate(zip(node.inputs, found)):
        if gradient is None:
            continue
        if not isinstance(gradient, Value):
            return f"returned {_named(gradient)} for input {number}, which is no tensor"
        if not _sums_to(gradient.type, value.type):
            return f"returned {gradient.type} for input {number}, which is {value.type}"
    return None


def _sums_to(gradient: TensorType, input: TensorType) -> bool:
    """True if the gradient has the input's type, or sums to it because the input was broadcast."""
    try:
        return gradient.dtype is input.dtype and broadcast((gradient.shape, input.shape)) == gradient.shape
    except Mismatch:
        return False


def _cost(op: Op, args: tuple[Any, ...], found: Any) -> str | None:
    if isinstance(found, Cost) and all(isinstance(n, int) and n >= 0 for n in (found.flops, found.bytes)):
        return None
    return f"returned {_named(found)}, which is no Cost of two ints"


def _rows(op: Op, args: tuple[Any, ...], found: Any) -> str | None:
    if found is None:
        return None
    types = args[0].types
    if not isinstance(found, tuple) or len(found) != len(types):
        return f"returned {_named(found)}, not an axis or None for each of {len(types)} outputs"
    if all(axis is None or (isinstance(axis, int) and 0 <= axis < type.rank) for axis, type in zip(found, types)):
        return None
    return f"returned the axes {found}, which outputs do not have"


def _in_eval(op: Op, args: tuple[Any, ...], found: Any) -> str | None:
    if found is None:
        return None
    types = args[0].types
    if isinstance(found, (tuple, list)) and [getattr(value, "type", None) for value in found] == [*types]:
        return None
    return f"returned {_named(found)}, not one tensor of its type for each of {len(types)} outputs"


def _index_range(op: Op, args: tuple[Any, ...], found: Any) -> str | None:
    if found is None or (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], int)):
        return None
    return f"returned {_named(found)}, not None or two bounds"


def _compose(op: Op, args: tuple[Any, ...], found: Any) -> str | None:
    if isinstance(found, Value) or (isinstance(found, tuple) and found and all(isinstance(v, Value) for v in found)):
        return None
    return f"returned {_named(found)}, which is no tensor and no tuple of tensors"


def _cuda(op: Op, args: tuple[Any, ...], found: Any) -> str | None:
    return None if found is None or isinstance(found, Cuda) else f"returned {_named(found)}, not None or a Cuda"


def _meaning(op: Op, args: tuple[Any, ...], found: Any) -> str | None:
    return None if isinstance(found, (tuple, list)) else f"returned {_named(found)}, not a list of arrays"


def _named(found: Any) -> str:
    kind = type(found).__name__
    return f"a {kind} of {len(found)}" if isinstance(found, (tuple, list)) else "None" if found is None else f"a {kind}"


#: The exceptions with which a method answers; in others they are faults.
_ANSWERS: Final[Mapping[str, tuple[type[Exception], ...]]] = {
    "build": (Mismatch,),
    "infer": (Mismatch,),
    "compose": (Mismatch,),
    "grad": (NoGradient,),
}
_CHECKS: Final[Mapping[str, Check]] = {
    "scalar": _scalar,
    "compose": _compose,
    "cuda": _cuda,
    "meaning": _meaning,
    "infer": _infer,
    "grad": _grad,
    "cost": _cost,
    "rows": _rows,
    "rows_of": _rows,
    "in_eval": _in_eval,
    "index_range": _index_range,
}
