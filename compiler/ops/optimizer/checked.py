"""Optimizers of the language that validate their arguments."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from dslc.base.words import of_percentage
from dslc.compiler.ir.function import Optimizer
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Builder, Mismatch, Op


def number(args: dict[str, Any], name: str, below: float = math.inf) -> float:
    """The argument, a finite number in [0, ``below``); raises Mismatch E0209."""
    value = args[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < below:
        limit = f"at least 0 and below {below:g}" if below < math.inf else "at least 0"
        percent = of_percentage(value, below=True) if below == 1 and isinstance(value, int | float) else None
        raise Mismatch(f"`{name}` is {value}", percent or f"a finite number, {limit}", "E0209")
    return float(value)


class CheckedOptimizer(Optimizer):
    """An optimizer that validates its arguments."""

    @abstractmethod
    def check(self, args: dict[str, Any]) -> None:
        """Raises Mismatch E0209 for an argument out of range. ``lr`` is checked if ``args`` has it as a number."""

    @abstractmethod
    def slot_names(self, args: dict[str, Any]) -> tuple[str, ...]:
        """Like ``slots``, for checked arguments."""

    def slots(self, args: dict[str, Any]) -> tuple[str, ...]:
        if args.get("lr") is not None:
            number(args, "lr")
        number(args, "weight_decay")
        self.check(args)
        return self.slot_names(args)


class OfOneOp(CheckedOptimizer):
    """An optimizer whose step is one op, of which a kernel may update many parameters."""

    @abstractmethod
    def step(self, args: dict[str, Any]) -> tuple[Op, dict[str, Any]]:
        """The op of a step and its attributes."""

    def update(
        self,
        b: Builder,
        args: dict[str, Any],
        param: Value,
        grad: Value,
        slots: Sequence[Value],
        lr: Value,
        step: Value,
    ) -> tuple[Value, ...]:
        assert len(slots) == len(self.slots(args))
        op, attrs = self.step(args)
        return b.node(op, param, grad, *slots, lr, step, weight_decay=float(args["weight_decay"]), **attrs).outputs
