"""The tables of cases, a file for each family of functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from op_sweep.cases import algebra, elementwise, index, loss, normalization, products, random, reduction, shape, spatial

if TYPE_CHECKING:
    from op_sweep.case import Case, Sizes

TABLES: Final = (elementwise, shape, index, reduction, loss, normalization, products, algebra, random, spatial)

#: Functions without a case, and why.
WITHOUT: Final = {
    **dict.fromkeys(("rnn", "gru", "lstm"), "a loop of kernels, no op"),
    **dict.fromkeys(
        ("full", "zeros", "ones", "tri", "linspace", "arange", "eye", "tensor"),
        "a constant of the build: no input, and no work in a step",
    ),
    **dict.fromkeys(
        ("reshape", "flatten", "squeeze", "unsqueeze", "stop_gradient"),
        "a view: no code, and no bytes move",
    ),
    "bitcast": "a view in PyTorch: there is no time to compare",
    **dict.fromkeys(("to_small", "from_small"), "floats of 4 to 8 bits, which no dtype of the sweep holds"),
    "gradient": "the gradients of all functions are cases",
}


def every(sizes: Sizes) -> list[Case]:
    """All cases, family by family."""
    return [case for table in TABLES for case in table.cases(sizes)]
