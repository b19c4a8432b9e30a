"""What ``predict`` reads prepared: the entry ``prepare`` computes it from the weights, once after they have changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from dslc.runtime.session.context import Context, Loaded
    from dslc.runtime.session.context_pool import Pool
    from dslc.runtime.session.state import State

T = TypeVar("T")


class Preparation:
    """``programs``: the session's program ``prepare``, or none. It runs while nobody else does, as a change of the
    weights. A run that an interrupt stops is repeated: ``State.prepared`` is set after it."""

    def __init__(self, programs: Sequence[Loaded], pool: Pool[Context], state: State) -> None:
        self._programs, self._pool, self._state = programs, pool, state

    def run(self, call: Callable[[Context], T], number: int | None = None) -> T:
        """``call`` with a context, and with all that ``predict`` reads prepared. ``number``: that of the context; None
        for any. Raises WeightsMissing R304 and ArtifactError R310 as ``State.ensure_ready``."""
        with self._pool.shared() if number is None else self._pool.one(number) as scope, scope as context:
            self._state.ensure_ready("predict")
            if self.current:
                return call(context)
        with self._pool.exclusive(number or 0) as scope, scope as context:  # now no other caller changes the weights
            self._state.ensure_ready("predict")
            self.ensure(context)
            return call(context)

    @property
    def current(self) -> bool:
        """True if there is nothing to compute."""
        return self._state.prepared or not self._programs

    def ensure(self, context: Context) -> None:
        """Run ``prepare`` unless its results are current. The caller holds all contexts."""
        if not self.current:
            for program in self._programs:
                context.feed(program, {}, {}).run()
            self._state.prepared = True
