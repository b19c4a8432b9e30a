"""Calls of the CUDA driver, each checked: a return code other than success becomes a DslcError.

After a sticky error every call raises DeviceLostError with the first error. Calls that only release something do
nothing: the context is dead and has released everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from dslc.base.errors import DslcError
from dslc.base.turns import unbroken
from dslc.runtime.cuda import faults
from dslc.runtime.cuda.waiting import comes_true

#: Things to be let go of: the name of the call that does it and the driver's answer that holds the object, or something
#: else to be called, perhaps twice.
Noted: TypeAlias = list[tuple[str | Callable[[], object], tuple[Any, ...]]]


class CheckedCalls:
    """Checked calls on ``binding``: ``cuda.bindings.driver``, or a substitute in tests.

    ``patience``: seconds after which awaited work counts as hung, DeviceLostError R208; inf for no limit.
    """

    def __init__(self, binding: Any, patience: float = math.inf) -> None:
        self._binding = binding
        self.patience = patience
        self.lost: DslcError | None = None  # the first sticky error

    def _call(self, name: str, *args: Any) -> Any:
        if self.lost is not None:
            raise faults.again(self.lost, name)
        answer = getattr(self._binding, name)(*args)
        if answer[0]:
            raise self._fault(name, int(answer[0]))
        return answer[1] if len(answer) == 2 else answer[1:]

    def _call_between(self, before: Callable[[], None], after: Callable[[], None], name: str, *args: Any) -> None:
        """Runs ``before``, the call and ``after``, all of them C functions, without an interrupt between them; runs
        ``before`` again if the call fails."""
        if self.lost is not None:
            raise faults.again(self.lost, name)
        _, answer, _ = unbroken((before, partial(getattr(self._binding, name), *args), after))
        if answer[0]:
            before()
            raise self._fault(name, int(answer[0]))

    def _made(self, noted: Noted, let_go: str, name: str, *args: Any) -> Any:
        """What a call makes, noted in the same step with the name of the call that lets go of it."""
        if self.lost is not None:
            raise faults.again(self.lost, name)
        noted.extend(zip((let_go,), map(getattr(self._binding, name), *((arg,) for arg in args))))
        code, made = noted[-1][1]
        if code:
            noted.pop()
            raise self._fault(name, int(code))
        return made

    def let_go(self, noted: Noted) -> None:
        """Let go of the object that was noted last, and take it off the list in the same step."""
        name, (code, made) = noted[-1]
        assert isinstance(name, str)
        if code or self.lost is not None:  # an interrupt came before it was known that there is nothing
            noted.pop()
        else:
            self._last_call(noted.pop, name, made)

    def _last_call(self, forget: Callable[[], object], name: str, thing: Any) -> None:
        """``forget``, a C function, and the call that lets go of ``thing``, without an interrupt between them."""
        _, answer = unbroken((forget, partial(getattr(self._binding, name), thing)))
        if answer[0]:
            raise self._fault(name, int(answer[0]))

    def _fault(self, name: str, code: int) -> DslcError:
        words = []
        for ask in ("cuGetErrorName", "cuGetErrorString"):
            failed, word = getattr(self._binding, ask)(self._binding.CUresult(code))
            words.append("unknown" if failed or word is None else word.decode("ascii", "replace"))
        error = faults.fault(name, code, *words)
        if code in faults.STICKY:
            self.lost = error
        return error

    def _ready(self, query: str, work: Any) -> bool:
        if self.lost is not None:
            raise faults.again(self.lost, query)
        code = getattr(self._binding, query)(work)[0]
        if not code:
            return True
        if int(code) == faults.NOT_READY:
            return False
        raise self._fault(query, int(code))

    def _await(self, wait: str, query: str, work: Any) -> None:
        """Wait for an event or a stream; the driver's own wait, which has no time limit, is used only if patience is
        inf."""
        if self.patience == math.inf:
            self._call(wait, work)
            return
        if not comes_true(lambda: self._ready(query, work), self.patience):
            self.lost = faults.hung(wait, self.patience)
            raise self.lost
