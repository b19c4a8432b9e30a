"""All that data is checked against before a build: the interface and the sizes that the artifact will have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dslc.compiler.artifact.interface import interface
from dslc.compiler.artifact.naming import artifact_name
from dslc.compiler.check.model import Checked
from dslc.compiler.options import Options, Sizes, entry_sizes, precision_of
from dslc.runtime.artifact.interface import Interface


@dataclass(frozen=True)
class ForeseenProgram:
    """A program that a build will make."""

    entry: str
    sizes: Sizes


@dataclass(frozen=True)
class Foreseen:
    """A model before its build, in the form in which the runtime knows a built one. ``listed``: its programs, in the
    order of the artifact."""

    name: str
    interface: Interface
    listed: tuple[ForeseenProgram, ...]

    @property
    def artifact(self) -> Foreseen:
        return self

    def programs(self, entry: str, /) -> Sequence[ForeseenProgram]:
        return [program for program in self.listed if program.entry == entry]


def foresee_interface(checked: Checked, options: Options) -> Foreseen:
    """Raises BuildError E0304, E0601 to E0604 for options that a build refuses."""
    options.check()
    name = artifact_name(checked, options.name)
    promised = Interface.of_header(interface(checked, name, precision_of(checked, options)))
    return Foreseen(name, promised, tuple(ForeseenProgram(*each) for each in entry_sizes(checked, options)))
