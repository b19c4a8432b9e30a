"""The bytes that an artifact says its kernels touch are all that they touch: each kernel as compiled, on memory of just
so many bytes between pages that nobody may touch, whatever the memory holds."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from cpu_kernels.guarded import Guarded, signal_of
from cpu_kernels.native import slots
from places import EXAMPLES
from thinning import taken

from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build
from dslc.runtime.artifact.dtypes import ITEMSIZE
from dslc.runtime.artifact.file import Artifact
from dslc.runtime.artifact.instructions import Kernel
from dslc.runtime.cpu.levels import machine_level
from dslc.runtime.cpu.native import VALUES
from dslc.runtime.cpu.objects import Objects

pytestmark = pytest.mark.slow

MODELS = {
    "digits/lenet.nn": {"B": (3,)},
    "charlm/charlm.nn": {"B": (2,), "T": (9,)},
    "vae/vae.nn": {"B": (3,)},
}
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
CONTENTS = (0x00, 0xFF, 0x3F, None)  # None: random bytes


@lru_cache(1)
def artifact(model: str) -> Artifact:
    checked = check_file(EXAMPLES / model)
    sizes = {n: v for n, v in MODELS[model].items() if n in {d.name for d in checked.dims}}
    return Artifact.of_bytes(build(checked, Options(sizes=dict.fromkeys(("train", "eval", "predict"), sizes))).artifact)


def loaded(made: Artifact) -> Objects:
    level = machine_level(tuple(n.removeprefix("code.") for n in made.blobs("object")))
    return Objects(bytes(made.blob(f"code.{level}")), sorted({row[0] for row in made.header["kernels"]}))


def alignments(made: Artifact) -> dict[str, list[int]]:
    """Of each kernel's arguments, the alignment that all plans give them: that of an element, 64 for scratch memory."""
    found: dict[str, list[int]] = {}
    for program in made.all_programs():
        plan = made.plan(program)
        for kernel in (i for i in plan.instructions if isinstance(i, Kernel)):
            buffers = [plan.buffers[int(index)] for kind, index in kernel.args if kind not in VALUES]
            given = [64 if b.dtype == "u8" and b.offset % 64 == 0 else ITEMSIZE[b.dtype] for b in buffers]
            found[kernel.symbol] = [min(x) for x in zip(given, found.get(kernel.symbol, given))]
    return found


def call(function: Any, tasks: int, memory: list[Guarded], values: list[tuple[str, int | float]]) -> int:
    arguments = slots([m.address for m in memory], values)
    return signal_of(lambda: function(arguments, 0, tasks))


@pytest.mark.parametrize("model", taken(MODELS, 3))
def test_kernels_touch_no_more_than_the_header_says(model: str) -> None:
    made = artifact(model)
    objects, align = loaded(made), alignments(made)
    rng = np.random.default_rng(5)
    assert len(made.header["kernels"]) > 20
    for symbol, grid, _, _, letters, values, sizes in made.header["kernels"]:
        function = KERNEL(objects.address(symbol))
        for at_end in (True, False):
            memory = [Guarded(n, at_end=at_end, align=a) for n, a in zip(sizes, align[symbol], strict=True)]
            for content in CONTENTS if at_end else CONTENTS[-1:]:
                for m in memory:
                    m.bytes[:] = content if content is not None else rng.integers(0, 256, m.bytes.size, np.uint8)
                reads = [m.bytes.copy() for m, kind in zip(memory, letters) if kind == "r"]
                assert call(function, grid[0], memory, values) == 0, (symbol, sizes, at_end, content)
                after = [m.bytes for m, kind in zip(memory, letters) if kind == "r"]
                assert all((x == y).all() for x, y in zip(reads, after)), f"{symbol} writes what it is to read"


def test_one_byte_less_is_touched() -> None:
    """Most kernels touch the last element of each of their buffers, so the bytes are not merely enough."""
    made = artifact("digits/lenet.nn")
    objects, align = loaded(made), alignments(made)
    touched, every = 0, 0
    for symbol, grid, _, _, _, values, sizes in made.header["kernels"]:
        function = KERNEL(objects.address(symbol))
        for number in range(len(sizes)):
            if align[symbol][number] == 64:
                continue  # scratch memory ends before the page, and is not always filled
            memory = [Guarded(n - (i == number) * align[symbol][i], at_end=True, align=align[symbol][i])
                      for i, n in enumerate(sizes)]  # fmt: skip
            for m in memory:
                m.bytes[:] = 0
            every += 1
            touched += call(function, grid[0], memory, values) != 0
    print(f"{touched} of {every}")
    assert touched > 0.9 * every > 50
