"""Finds the entry point of a dataset and calls it.

Only entry points of installed packages are used: dslc.yaml names an entry point, never a module. So a configuration by
a stranger runs no code that the user did not install. A package's code may print; what it prints goes to stderr.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from dslc.base.errors import DataError, DslcError
from dslc.base.version import VERSION
from dslc.base.words import reason
from dslc.runtime.data.entries.call import Call
from dslc.runtime.nearest import nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "dslc.data"
_OWN: Final = {"huggingface": "dslc.runtime.data.entries.huggingface"}  # module of each entry point of dslc itself
_MOST_FILES: Final = 20_000  # whose sizes and times are compared


def require(name: str) -> None:
    """Raise DataError R101 unless there is exactly one entry point of this name; imports none."""
    if name not in _OWN:
        _found(name)
    elif _points(name):
        _refuse(name, "an installed package uses this name, which is one of dslc", "remove the package")


@lru_cache(maxsize=4)
def loaded(call: Call) -> Any:
    """The dataset of a call, which a process makes once. Raises DataError R101."""
    function, _ = _function(call.name)
    with guarded(call.name, "it failed"):
        return function(**dict(call.arguments))


def identity(call: Call, *, times: bool = True) -> str:
    """A text that changes if the package, its module, the call or the files that the call names change.

    ``times``: compare files by the times of their last change, too. Raises DataError R101.
    """
    function, package = _function(call.name)
    parts = [package, call.text, _digest_of(function)]
    fingerprint = getattr(function, "fingerprint", None)
    if fingerprint is not None:
        with guarded(call.name, "its `fingerprint` failed"):
            parts.append(str(fingerprint(**dict(call.arguments))))
    for path in call.paths:
        parts += [str(path), *_states(path, times)]
    return "\n".join(parts)


@contextmanager
def guarded(name: str, cause: str) -> Iterator[None]:
    """Turns an error of a package's code into DataError R101, and sends its output to stderr."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (DslcError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001  (the package's code may raise anything)
        _refuse(name, f"{cause}: {type(error).__name__}: {reason(error)}", _HELP, error)


_HELP: Final = "the error is the package's: call its function in Python, with the same arguments"


@lru_cache(maxsize=16)
def _function(name: str) -> tuple[Callable[..., Any], str]:
    """The function, and the name and version of its distribution."""
    require(name)
    if name in _OWN:
        from importlib import import_module

        return import_module(_OWN[name]).load, f"dslc {VERSION}"
    point = _found(name)
    with guarded(name, "its package cannot be imported"):
        function = point.load()
    if not callable(function):
        _refuse(
            name, f"it is a {type(function).__name__}, not a function", "register a function that returns a dataset"
        )
    package = point.dist
    return function, point.value if package is None else f"{package.name} {package.version} {point.value}"


def _points(name: str | None = None) -> list[EntryPoint]:
    from importlib.metadata import entry_points

    return [point for point in entry_points(group=GROUP) if name is None or point.name == name]


def _found(name: str) -> EntryPoint:
    found = _points(name)
    if len(found) == 1:
        return found[0]
    if found:
        packages = sorted({point.dist.name if point.dist is not None else point.value for point in found})
        _refuse(name, f"{len(found)} installed packages use this name: {', '.join(packages)}", "remove one of them")
    known = sorted({*_OWN, *(point.name for point in _points())})
    close = nearest(name, known)
    cause = f"no installed package has an entry point `{name[:60]}` of the group `{GROUP}`"
    _refuse(name, cause, f"did you mean `{close}`?" if close else f"known are {', '.join(known)[:200]}")


def _digest_of(function: Any) -> str:
    """The SHA-256 of the file that defines a function; empty if it has none."""
    try:
        file = inspect.getsourcefile(inspect.unwrap(function))
        return "" if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except (TypeError, OSError):  # an object without source, such as a class of C
        return ""


def _states(path: Path, times: bool) -> list[str]:
    """The size, and the time of the last change, of a file or of the files in a folder."""
    files = [path]
    if path.is_dir():
        files = []
        for place, folders, names in os.walk(path):
            folders.sort()
            files += [Path(place, name) for name in sorted(names)]
            if len(files) > _MOST_FILES:
                break
    found = []
    for file in files[:_MOST_FILES]:
        try:
            status = os.stat(file)
            found.append(f"{os.path.relpath(file, path)} {status.st_size} {status.st_mtime_ns if times else ''}")
        except OSError as error:  # the package will say whether it needs the file
            found.append(f"{os.path.relpath(file, path)} {error.errno}")
    return found


def _refuse(name: str, cause: str, help: str, error: BaseException | None = None) -> NoReturn:
    raise DataError("R101", cause, place=f"entry:{name}", help=help) from error
