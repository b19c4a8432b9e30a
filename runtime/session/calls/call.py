"""The common part of a session's calls: checks names and arrays, then finds programs of the right sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dslc.base.errors import ArtifactError, InputError
from dslc.runtime.artifact.interface import Dim, Interface, Tensor
from dslc.runtime.session.backend import OnDevice
from dslc.runtime.session.batches import Cut, cut
from dslc.runtime.session.inputs.arrays import shown
from dslc.runtime.session.inputs.check import Accepted, Look, check_inputs, check_names, check_ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.session.context import Loaded

Arrays = dict[str, "NDArray[Any] | OnDevice"]


class Call:
    """The base of the calls: checks names and arrays, then finds programs of the right sizes."""

    entry: str  # the entry of the artifact
    call: str  # the call as users write it
    converts: ClassVar[bool] = False  # numbers of another dtype, and Python's

    def __init__(self, interface: Interface, programs: Sequence[Loaded], look: Look) -> None:
        if not programs:
            raise ArtifactError(
                "R303",
                f"the artifact holds no entry `{self.entry}`",
                place=self.entry,
                help="add a train section to the model and build it again",
            )
        self.interface = interface
        self.programs = programs
        self.look = look
        self._like: Accepted | None = None  # the last call's accepted arguments: the same ones are checked faster
        read = {port.name for p in programs for port in p.plan.inputs}
        self.tensors: tuple[Tensor, ...] = interface.inputs
        self.optional: frozenset[str] = frozenset()
        self.defaults: Mapping[str, float] = {}
        if self.entry != "predict" and interface.train is not None:
            self.tensors = interface.train_inputs
            self.optional = frozenset(t.name for t in self.tensors if t.name not in read)
            self.defaults = interface.train.scalars

    def by_name(self, unnamed: Sequence[object]) -> None:
        """Raises InputError R105 for inputs without a name: their order in a model's text must not matter."""
        if unnamed:
            names = ", ".join(f"{t.name}=..." for t in self.tensors)
            raise InputError(
                "R105", "inputs must be passed by name", place=self.call, help=f"write {self.call}({names})"
            )

    def checked(
        self, given: Mapping[str, object], *, ranges: bool = True
    ) -> tuple[Arrays, dict[str, float], dict[str, int]]:
        """The arrays, the float arguments (with defaults) and the value of each dim. Raises InputError R105.
        ``ranges``: False if the caller checks whether values are in their ranges."""
        like = self._like
        if like is not None and like.fits(given):
            arrays: Arrays = {name: given[name] for name, *_ in like.arrays}  # type: ignore[misc]
            dims = like.dims
            if ranges and like.ranged:
                check_ranges(self.call, arrays, like.ranged, dims, self.look)
        else:
            required = [t.name for t in self.tensors if t.name not in self.optional]
            trained = {t.name for t in self.interface.train_inputs}
            check_names(self.call, list(given), required, [*self.optional, *self.defaults], trained)
            present = [t for t in self.tensors if t.name in given]
            arrays, dims = check_inputs(self.call, given, present, self.bounds, convert=self.converts)
            dims = self.with_built(dims)
            if ranges:
                check_ranges(self.call, arrays, present, dims, self.look)
            self._like = Accepted.of(given, present, dims)
        return arrays, self.arguments(given), dims

    def with_built(self, dims: dict[str, int]) -> dict[str, int]:
        """``dims``, and those that no input determines, such as the number of graphs of which a call gives the nodes:
        they have the sizes of the programs. InputError R105 if programs were built for several of these sizes."""
        built: dict[str, set[int]] = {}
        for program in self.programs:
            for name, size in self.sizes(program).items():
                built.setdefault(name, set()).add(size)
        for name in sorted(built.keys() - dims.keys()):
            if len(built[name]) > 1:
                sizes = " and ".join(map(str, sorted(built[name])))
                raise InputError(
                    "R105",
                    f"`{self.call}` was built for {name} = {sizes}, and no input has an axis {name} that tells which",
                    place=self.call,
                    help=f"build it for one {name}, with --size, or give the model an input that has the axis {name}",
                )
            dims = {**dims, name: min(built[name])}
        return dims

    def arguments(self, given: Mapping[str, object]) -> dict[str, float]:
        """The float arguments, with defaults for missing ones."""
        return {n: number(self.call, n, given[n]) if n in given else v for n, v in self.defaults.items()}

    @cached_property
    def bounds(self) -> tuple[Dim, ...]:
        """The dims with their bounds for this call."""
        return self.interface.dims

    def matching(self, dims: Mapping[str, int], *, whole: bool) -> list[Loaded]:
        """The programs built for these dims; the batch dim may differ unless ``whole``."""
        batch = self.interface.batch
        fixed = {n: v for n, v in dims.items() if whole or n != batch}
        found = [p for p in self.programs if all(self.sizes(p).get(n, v) == v for n, v in fixed.items())]
        if not found:
            raise self.not_built(fixed)
        return found

    def sizes(self, program: Loaded) -> Mapping[str, int]:
        """The dims of a call that this program runs."""
        return program.sizes

    def shown(self, program: Loaded) -> str:
        """``sizes`` as text."""
        return ", ".join(f"{n} = {v}" for n, v in sorted(self.sizes(program).items()))

    def not_built(self, dims: Mapping[str, int]) -> InputError:
        """The error R105 for sizes that no program of this entry was built for."""
        asked = ", ".join(f"{n} = {v}" for n, v in sorted(dims.items()))
        built = "; ".join(sorted(map(self.shown, self.programs)))
        return InputError(
            "R105",
            f"`{self.call}` was not built for {asked}",
            place=self.call,
            help=f"give {built}" + "; other sizes are built with --size",
        )

    def cut(
        self, dims: Mapping[str, int], tensors: tuple[Tensor, ...], *, pad: bool
    ) -> list[tuple[Loaded, Cut | None]]:
        """The runs that make up the call, in the order of their rows. A single run without a cut if rows are not
        separable."""
        batch = self.interface.batch
        if batch is None or batch not in dims or not self.interface.cuttable(tensors):
            return [(self.matching(dims, whole=True)[0], None)]
        by_size = {p.sizes[batch]: p for p in self.matching(dims, whole=False)}
        pieces = cut(dims[batch], list(by_size), pad=pad)
        if pieces is None:
            sizes = sorted(by_size)
            raise InputError(
                "R105",
                f"{dims[batch]} rows do not divide into the built batches of {' and '.join(map(str, sizes))}",
                place=self.call,
                help=f"give {batch} = a multiple of {sizes[0]}; other sizes are built with --size",
            )
        return [(by_size[piece.size], piece) for piece in pieces]

    @cached_property
    def by_row(self) -> frozenset[str]:
        """The inputs whose axis 0 is the batch dim."""
        return frozenset(t.name for t in self.tensors if self.interface.rows_of(t))


def unbounded(dim: Dim) -> Dim:
    return replace(dim, low=0, high=(1 << 63) - 1)


def number(call: str, name: str, value: object) -> float:
    """A finite float argument; InputError R105 for anything else."""
    if isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool):
        try:
            result = float(value)
        except Exception:  # noqa: BLE001  (too large for a float; and a class of the caller's may raise anything)
            result = math.inf
        if math.isfinite(result):
            return result
    raise InputError(
        "R105",
        f"`{name}` is {shown(value)[:60]}, expected a finite number",
        place=f"{call}({name}=...)",
        help="pass a float",
    )
