"""Functions of installed packages: ``use "entry:NAME" (f, g)`` names an entry point of the group ``dslc.ops``.

Only entry points are used: a model names no module, so a model by a stranger runs no code that the user did not
install. The entry point is a list of ``Function`` objects; the names of the ops that it registers begin with ``NAME.``,
so that packages do not collide. A package's code may print; its output goes to stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import BuildError
from dslc.base.words import reason
from dslc.compiler.ir.function import ANNOTATIONS, FUNCTIONS, OPTIMIZERS, Function, checked_function
from dslc.compiler.ir.op import OPS
from dslc.compiler.ops.packages.guard import Owner, guard_function, guard_op
from dslc.compiler.toolchain.source_digest import digest_of
from dslc.dsl.syntax import PACKAGE
from dslc.runtime.nearest import nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "dslc.ops"


class Unusable(Exception):
    """A package whose functions cannot be used. ``help``: the next step."""

    def __init__(self, why: str, help: str) -> None:
        super().__init__(why)
        self.help = help


@dataclass(frozen=True, eq=False)
class Package:
    """The functions of an entry point, by name; the entry point and its distribution. ``digest``: SHA-256 of the
    package's files."""

    entry: str
    name: str
    version: str
    target: str
    digest: str
    functions: Mapping[str, Function]

    @property
    def identity(self) -> str:
        """Everything that determines what the functions compute, as one text."""
        return f"{self.entry} {self.name} {self.version} {self.target} {self.digest}"

    @property
    def provenance(self) -> dict[str, str]:
        """What an artifact says of the package."""
        return {"entry": self.entry, "name": self.name, "version": self.version, "sha256": self.digest}


#: The packages of this process, and why others cannot be used: Python imports a module once, too.
_LOADED: Final[dict[str, Package | Unusable]] = {}


def package(name: str) -> Package:
    """The package of an entry point, imported once in a process. Raises Unusable."""
    if name not in _LOADED:
        point = _point(name)  # not remembered: the user may install it while the process runs
        try:
            _LOADED[name] = _load(name, point)
        except Unusable as error:
            _LOADED[name] = error
    found = _LOADED[name]
    if isinstance(found, Unusable):
        raise Unusable(str(found), found.help) from found
    return found


def package_or_error(name: str) -> Package:
    """The package of an entry point that no model names. Raises BuildError E0115."""
    try:
        return package(name)
    except Unusable as error:
        title = f"the ops of `{PACKAGE}{name}` cannot be used: {error}"
        raise BuildError("E0115", title, place=name, help=error.help) from None


def _load(name: str, point: EntryPoint) -> Package:
    if point.dist is None:
        raise Unusable("its distribution has no name and version", "install it as a package")
    tables: tuple[dict[str, Any], ...] = (OPS, FUNCTIONS, OPTIMIZERS)
    before = [dict(table) for table in tables]
    try:
        found = _imported(point)
        _check_tables(point, before)
        functions = _functions(found)
        sources = _sources(point)
    except BaseException:
        for table, old in zip(tables, before):
            for key in table.keys() - old.keys():
                del table[key]
        raise
    owner = Owner(f"{point.dist.name} {point.dist.version}", sources)
    for key in OPS.keys() - before[0].keys():
        guard_op(OPS[key], owner)
    for each in functions.values():
        guard_function(each, owner)
    return Package(name, point.dist.name, point.dist.version, point.value, digest_of(sources), functions)


def _point(name: str) -> EntryPoint:
    from importlib.metadata import entry_points

    points = list(entry_points(group=GROUP))
    found = [point for point in points if point.name == name]
    if not name.isidentifier():
        raise Unusable(
            f"`{name[:60]}` is no identifier", "the name of an entry point consists of letters, digits and _"
        )
    if len(found) == 1:
        return found[0]
    if found:
        owners = ", ".join(sorted({point.value if point.dist is None else point.dist.name for point in found}))
        raise Unusable(f"{len(found)} installed packages use this name: {owners}", "remove one of them")
    close = nearest(name, sorted(point.name for point in points))
    why = f"no installed package has an entry point `{name[:60]}` of the group `{GROUP}`"
    raise Unusable(why, f"did you mean `{PACKAGE}{close}`?" if close else "install the package that has it")


def _imported(point: EntryPoint) -> Any:
    try:
        with redirect_stdout(sys.stderr):
            return point.load()
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:  # the package's code may raise anything
        places = [f"{f.filename}:{f.lineno}" for f in extract_tb(error.__traceback__) if not f.filename.startswith("<")]
        if isinstance(error, SyntaxError):
            places.append(f"{error.filename}:{error.lineno}")
        why = f"its package cannot be imported: {type(error).__name__}: {reason(error)}, at {places[-1]}"
        raise Unusable(why, f"the error is the package's: import {point.module} in Python") from error


def _check_tables(point: EntryPoint, before: list[dict[str, Any]]) -> None:
    """Raises Unusable for an op whose name does not begin with the name of an entry point of this distribution and a
    dot, and for a function for all models."""
    from importlib.metadata import entry_points

    assert point.dist is not None
    siblings = {p.name for p in entry_points(group=GROUP) if p.dist is not None and p.dist.name == point.dist.name}
    for key in sorted(OPS.keys() - before[0].keys()):
        entry, _, name = key.partition(".")
        if entry not in siblings or not name.isidentifier():
            why = f"its op `{key[:60]}` needs a name that begins with `{point.name}.` and goes on with an identifier"
            raise Unusable(why, "tell its author; an op of another package is loaded if the model uses that first")
    wrong = sorted({*FUNCTIONS, *OPTIMIZERS} - before[1].keys() - before[2].keys())
    if wrong:
        raise Unusable(f"it registers `{wrong[0]}` for all models", "its author lists it in the entry point instead")


def _functions(found: Any) -> dict[str, Function]:
    if not isinstance(found, (list, tuple)) or not all(isinstance(each, Function) for each in found):
        raise Unusable("its entry point is no list of functions", "its author lists objects of subclasses of Function")
    functions: dict[str, Function] = {}
    for each in found:
        try:
            functions[checked_function(each, functions)] = each
        except TypeError as error:
            raise Unusable(reason(error), "tell its author") from error
        if not each.name.isidentifier():
            raise Unusable(f"its function `{each.name[:60]}` cannot be called: no identifier", "tell its author")
        for parameter in each.parameters:
            if str(parameter.annotation).replace(" | None", "") not in ANNOTATIONS:
                why = f"the argument `{parameter.name}` of `{each.name}` needs an annotation: {', '.join(ANNOTATIONS)}"
                raise Unusable(why, "its author begins the file with `from __future__ import annotations`")
    return functions


def _sources(point: EntryPoint) -> tuple[Path, ...]:
    """The folder of the Python package, or the only file, whose sources determine what its ops compute. Namespaces,
    which several distributions share, are passed over."""
    parts = point.module.split(".")
    for count in range(1, len(parts) + 1):
        spec = find_spec(".".join(parts[:count]))
        if spec is not None and spec.origin is not None:
            folders = spec.submodule_search_locations
            return tuple(map(Path, folders)) if folders else (Path(spec.origin),)
    raise Unusable(f"{point.module} has no file", "install it as a package")
