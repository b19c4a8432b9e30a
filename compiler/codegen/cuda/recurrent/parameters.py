"""The parameters of a resident kernel of one loop or several: the macros ``POINTERS`` and ``POINTER_NAMES``.

Several loops have the same step and tensors of their own. Each has blocks of its own: ``blockIdx.y`` is the loop's
number, and ``blockIdx.x`` the block's in the loop. So the code of the step is that of one loop, and reads the pointers
of the block's loop.
"""

from __future__ import annotations

from collections.abc import Sequence


def parameters(pointers: Sequence[str], inputs: int, loops: int, scratch_bytes: int) -> str:
    """The macros. ``pointers``: declarations for one loop, first its inputs, last its scratch memory. Of several, the
    kernel has the inputs of each, the results of each, and one piece of scratch memory with a part for each."""
    *own, scratch = pointers
    names = [*map(name_of, pointers)]
    listed, chosen = [*pointers], names
    if loops > 1:
        parts = own[:inputs], own[inputs:]
        listed = [f"{each}_{loop}" for part in parts for loop in range(loops) for each in part] + [scratch]
        chosen = [of_block([f"{name}_{loop}" for loop in range(loops)]) for name in names[:-1]]
        chosen.append(f"{names[-1]} + blockIdx.y * {scratch_bytes}")
    return f"#define POINTERS {', '.join(listed)}\n#define POINTER_NAMES {', '.join(chosen)}\n"


def of_block(of_loops: Sequence[str]) -> str:
    """The expression of the block's loop."""
    *others, last = of_loops
    return f"({''.join(f'blockIdx.y == {loop} ? {each} : ' for loop, each in enumerate(others))}{last})"


def name_of(pointer: str) -> str:
    """The name in a declaration."""
    return pointer.rpartition(" ")[2].lstrip("*")
