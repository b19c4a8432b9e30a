"""The calls that a session was loaded for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dslc.base.errors import InputError
from dslc.runtime.artifact.header_schema import TOGETHER
from dslc.runtime.session.calls.evaluate import Evaluate
from dslc.runtime.session.calls.predict import Predict
from dslc.runtime.session.calls.train_step import TrainStep
from dslc.runtime.session.open import CALLS

if TYPE_CHECKING:
    from dslc.runtime.artifact.interface import Interface
    from dslc.runtime.session.calls.shards import MakeSums
    from dslc.runtime.session.context import Loaded
    from dslc.runtime.session.inputs.check import Look


class LoadedCalls:
    """The calls of an artifact, each made when it is first used.

    ``header``: the artifact's. ``programs``: by entry. ``names``: the calls that the session was loaded for, None for
    all; another one raises InputError R105. ``make_sums``: makes the sums over shards in the backend's memory;
    ``look``: looks for values outside their ranges in arrays on its device.
    """

    def __init__(
        self,
        header: Mapping[str, Any],
        interface: Interface,
        programs: Mapping[str, list[Loaded]],
        names: frozenset[str] | None,
        make_sums: MakeSums,
        look: Look,
    ) -> None:
        self._interface, self._programs, self._names, self._make_sums = interface, programs, names, make_sums
        self._look = look
        self.row_independent: bool = header["row_independent"]
        self._together = TOGETHER in header["required_features"]

    @cached_property
    def predict(self) -> Predict:
        return Predict(self._interface, self._entry("predict"), self._look, self.row_independent, self._together)

    @cached_property
    def train_step(self) -> TrainStep:
        whole, accumulating, updating = map(self._entry, ("train_step", "accumulate_step", "update_step"))
        return TrainStep(self._interface, whole, self._look, accumulating, updating, self._make_sums)

    @cached_property
    def evaluate(self) -> Evaluate:
        return Evaluate(self._interface, self._entry("eval_step"), self._look, self._entry("eval_finish"))

    @property
    def init(self) -> Loaded:
        """The program that draws the initial values."""
        [program] = self._entry("init")
        return program

    def _entry(self, entry: str) -> list[Loaded]:
        call = next((call for call, entries in CALLS.items() if entry in entries), None)
        if call is not None and self._names is not None and call not in self._names:
            held = ", ".join(repr(each) for each in CALLS if each in (*self._names, call))
            raise InputError(
                "R105",
                f"this session was loaded for other calls than `{call}`",
                place=call,
                help=f"load it with calls=({held},), or without `calls` for all of them",
            )
        return self._programs.get(entry, [])
