"""What training needs of a session, and what a check before a build needs of a model, as protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from dslc.runtime.artifact.interface import Interface
from dslc.runtime.session.results import EvalResult, StepResult


class WeightsFile(Protocol):
    notes: Any  # texts by name, copied on reading

    def save(self, path: Any, /, notes: Mapping[str, str] | None = None) -> None: ...
    def __setitem__(self, name: str, value: Any, /) -> None: ...


class Sized(Protocol):
    """A program, or one that a build will make: the value of each dim."""

    @property
    def sizes(self) -> Mapping[str, int]: ...


class HasPrograms(Protocol):
    """An artifact, or one that a build will make."""

    def programs(self, entry: str, /) -> Sequence[Sized]: ...


class Declared(Protocol):
    """All that is needed to open and check data: a Session, or a model that is not built yet (``Foreseen``)."""

    @property
    def name(self) -> str: ...
    @property
    def interface(self) -> Interface: ...
    @property
    def artifact(self) -> HasPrograms: ...


class Trainable(Declared, Protocol):
    """The methods of a Session that training uses."""

    @property
    def artifact(self) -> Any: ...
    @property
    def weights(self) -> WeightsFile: ...
    @property
    def seed(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def steps_per_launch(self) -> int: ...
    def train_step(self, /, *, lr: float | None = None, row: int | None = None, **inputs: object) -> StepResult: ...
    def train_steps(self, batches: Iterable[Mapping[str, object]], /) -> list[StepResult]: ...
    def evaluate_rows(
        self,
        rows: int,
        read: Callable[[Sequence[tuple[int, int]]], Iterable[Mapping[str, object]]],
        /,
        *,
        step: int = 0,
        **arguments: object,
    ) -> EvalResult: ...
    def state_tensors(self) -> dict[str, NDArray[Any]]: ...
    def restore(self, tensors: Mapping[str, NDArray[Any]], step: int) -> None: ...
    def reset_state(self) -> None: ...
