"""docs/passes.md, from the order of the passes and the first sentences of their files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from dslc.compiler.ir.build import Pass
from dslc.compiler.passes.mirror import mirror as mirror_file
from dslc.compiler.passes.order import FUSING, LOWERING, PLANNING, mirror
from dslc.compiler.passes.runner import pass_name

_PACKAGE: Final = "dslc.compiler.passes."
_HEAD: Final = """\
# The passes

All passes in the order in which they run, as `compiler/passes/order.py` lists them, with the first sentence of each
file. The rest of a file's docstring shows a graph before and after the pass. A pass runs only under its condition
there, such as `when(calls_libraries, ...)`; `conditions.py` says what each condition means. `dslc show model.nn --diff
PASS` shows what a pass changes in a model, and `dslc why model.nn:LINE` lists the passes that changed a line.
"""
_STAGES: Final[tuple[tuple[str, Sequence[Pass]], ...]] = (
    ("Lowering: dtypes, gradients, layout", LOWERING),
    ("Recomputation", (mirror,)),
    ("Fusion", FUSING),
    ("Planning", PLANNING),
)


def passes_page() -> str:
    """The page; each pass is a row: its name, its file below ``compiler/passes``, and its purpose."""
    lines = [_HEAD]
    for title, passes in _STAGES:
        lines += [f"## {title}", "", "| pass | file | what it does |", "|---|---|---|"]
        lines += [*map(_row, passes), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _row(step: Pass) -> str:
    # `mirror` is put together where the order of the passes is, because it is told the passes after it
    module = mirror_file.__name__ if step is mirror else step.__module__
    purpose = (sys.modules[module].__doc__ or "").partition("\n\n")[0].replace("\n", " ").replace("``", "`")
    file = module.removeprefix(_PACKAGE).replace(".", "/") + ".py"
    return f"| `{pass_name(step)}` | `{file}` | {purpose} |"
