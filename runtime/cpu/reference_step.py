"""One instruction that numpy runs: an op's reference implementation, its meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from dslc.base.errors import EnvironmentFault
from dslc.runtime.cpu.views import Array, described, read_only

Meaning: TypeAlias = Callable[[Sequence[Array], Mapping[str, Any]], Sequence[Array]]
Meanings: TypeAlias = Mapping[str, Meaning]


class ReferenceStep:
    """One op run by its numpy meaning: its results are checked against the plan and copied into the plan's buffers."""

    __slots__ = ("_attrs", "_inputs", "_meaning", "_op", "_outputs", "_own_results", "_where")

    def __init__(
        self, op: str, where: str, meaning: Meaning, attrs: Mapping[str, Any], inputs: Sequence[Array],
        outputs: Sequence[Array],
    ) -> None:  # fmt: skip
        self._op, self._where, self._meaning, self._attrs = op, where, meaning, attrs
        self._inputs = tuple(read_only(view) for view in inputs)
        self._outputs = tuple(outputs)
        # A result may be a view of an input, and writing an earlier output over that input would change it. So if an op
        # with several results works in place, its results are copied before the first one is written.
        self._own_results = len(outputs) > 1 and any(np.may_share_memory(i, o) for i in self._inputs for o in outputs)

    def __call__(self) -> None:
        try:
            results = [np.asarray(r) for r in self._meaning(self._inputs, self._attrs)]
        except Exception as error:
            error.add_note(f"while running {self._op} of {self._where}")
            raise
        self._check(results)
        if self._own_results:
            results = [r.copy() for r in results]
        for output, result in zip(self._outputs, results, strict=True):
            np.copyto(output, result, casting="no")

    def _check(self, results: Sequence[Array]) -> None:
        gave = [(r.dtype, r.shape) for r in results]
        if gave != [(o.dtype, o.shape) for o in self._outputs]:
            planned = ", ".join(described(o) for o in self._outputs)
            got = ", ".join(described(r) for r in results)
            raise EnvironmentFault(
                "R203",
                f"{self._op} returned {got or 'nothing'}; the plan says {planned or 'nothing'}",
                place=self._where,
                help="build the artifact again with the dslc that runs it",
            )
