"""All that data and weights are checked against before a build: the interface, the sizes and the weights that the
artifact will have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dslc.compiler.artifact.interface import interface
from dslc.compiler.artifact.naming import artifact_name
from dslc.compiler.artifact.state_layout import layout_state
from dslc.compiler.check.model import Checked
from dslc.compiler.ir.graph import Kind
from dslc.compiler.options import Options, Sizes, entry_sizes, precision_of
from dslc.runtime.artifact.interface import Interface
from dslc.runtime.session.state import StateTensor


@dataclass(frozen=True)
class ForeseenProgram:
    """A program that a build will make."""

    entry: str
    sizes: Sizes


@dataclass(frozen=True)
class Foreseen:
    """A model before its build, in the form in which the runtime knows a built one. ``listed``: its programs, in the
    order of the artifact. ``weights``: its parameters and buffers."""

    name: str
    interface: Interface
    listed: tuple[ForeseenProgram, ...]
    weights: Mapping[str, StateTensor]

    @property
    def artifact(self) -> Foreseen:
        return self

    def programs(self, entry: str, /) -> Sequence[ForeseenProgram]:
        return [program for program in self.listed if program.entry == entry]


def foresee_interface(checked: Checked, options: Options) -> Foreseen:
    """Raises BuildError E0304, E0601 to E0604 for options that a build refuses."""
    options.check()
    name = artifact_name(checked, options.name)
    dtypes = precision_of(checked, options)
    promised = Interface.of_header(interface(checked, name, dtypes))
    weights = {
        tensor.name: StateTensor(tensor.name, tensor.kind.value, tensor.type.dtype.value, tensor.type.ints, 0)
        for tensor in layout_state(checked, dtypes.params).tensors
        if tensor.kind is not Kind.OPTIMIZER
    }
    programs = tuple(ForeseenProgram(*each) for each in entry_sizes(checked, options))
    return Foreseen(name, promised, programs, weights)
