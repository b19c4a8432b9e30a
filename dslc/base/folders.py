"""Folders of modules that register what they define: they are listed, not named one by one."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules


@cache
def import_modules(package: str) -> None:
    """Imports the modules of a package, without its sub-packages, in the order of their names; once."""
    names = sorted(found.name for found in iter_modules(import_module(package).__path__) if not found.ispkg)
    for name in names:
        import_module(f"{package}.{name}")


@cache
def import_tree(package: str) -> None:
    """Imports the modules of a package and of its sub-packages, in the order of their names; once."""
    import_modules(package)
    inner = sorted(found.name for found in iter_modules(import_module(package).__path__) if found.ispkg)
    for name in inner:
        import_tree(f"{package}.{name}")
