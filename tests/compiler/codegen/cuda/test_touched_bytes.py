"""The bytes that an artifact says its kernels touch, against those that their threads touch: each launch of a model as
compiled, on memory of just so many bytes, whatever the memory holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_kernels import ptx_machine
from thinning import SOAK, taken, turn

from dslc.cli.build_options import options_of
from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.compile import compiled
from dslc.compiler.options import entry_sizes
from dslc.compiler.pipeline import compile_entry
from dslc.runtime.extents import rows_of

pytestmark = pytest.mark.slow

MOST_THREADS = 3000  # of a launch: a second or two of the machine
MODELS = {
    "images": """nn 1
dim B in 1..4 = 2
model Small(image: [B, 2, 6, 6]) -> [B, 3] {
  h = image |> conv(4, 3, pad=1) |> batchnorm |> relu |> maxpool(2) |> dropout(0.25)
  return h |> flatten |> linear(5) |> gelu |> linear(3)
}
train Small(label: i32[B]) {
  loss      = cross_entropy(output, label)
  metrics   { accuracy = accuracy(output, label) }
  optimizer = adamw(lr=0.01)
}
""",
    "words": """nn 1
dim B in 1..4 = 1
dim T in 1..8 = 5
model Small(ids: i32[B, T]) -> [B, T, 7] {
  x = ids |> embedding(7, 8) as e
  q, k, v = x |> layernorm |> linear(24) |> rearrange("B T (three h d) -> three B h T d", three=3, h=2)
  y = sdpa(q, k, v, causal=true) |> rearrange("B h T d -> B T (h d)")
  return (x + y) |> linear(7)
}
train Small(label: i32[B, T]) {
  loss      = cross_entropy(output, label)
  optimizer = sgd(lr=0.1, momentum=0.9)
}
""",
}


def launches(folder: Path, model: str) -> tuple[list[Any], dict[str, Any]]:
    """The rows of the header that a build makes, and the kernels' descriptions."""
    (folder / "small.nn").write_text(MODELS[model])
    checked = check_file(folder / "small.nn")
    options = options_of({"target": "sm_90", "providers": "own"})
    kernels: dict[str, Any] = {}
    programs = [compile_entry(checked, e, s, options)[0] for e, s in entry_sizes(checked, options)]
    return rows_of([plan_of(p, kernels) for p in programs]), kernels


@pytest.mark.parametrize("model", taken(MODELS, 2))
def test_threads_touch_no_more_than_the_header_says(tmp_path: Path, model: str) -> None:
    """The machine refuses an access beyond the bytes; and most launches touch the last one of each buffer. A normal run
    takes a third of the launches, chosen by DSLC_PART."""
    rows, kernels = launches(tmp_path, model)
    small = [row for row in rows if np.prod(row[1]) * row[2][0] <= MOST_THREADS]
    assert len(small) > 0.6 * len(rows)
    share = 1 if SOAK else 3
    rng = np.random.default_rng(7)
    ended, every = 0, 0
    for symbol, grid, block, shared_bytes, _, values, sizes in small[turn(share) :: share]:
        ptx = compiled(kernels[symbol], symbol, "sm_90").ptx.decode("ascii")
        given = tuple((kind, value) for kind, value in values)
        assert block[1:] == [1, 1]
        for content in ("zeros", "any") if SOAK else ("any",):
            memory = [np.zeros(n, np.uint8) for n in sizes]
            for m in memory:
                m[:] = 0 if content == "zeros" else rng.integers(0, 256, m.size)
            touched = ptx_machine.run(ptx, tuple(grid), block[0], memory, given, shared_bytes, races=False)
            ended += sum(end == size for end, size in zip(touched, sizes, strict=True))
            every += len(sizes)
    print(f"{ended} of {every} buffers are touched to their last byte")
    assert ended > 0.8 * every > 15


def test_one_byte_less_is_found(tmp_path: Path) -> None:
    rows, kernels = launches(tmp_path, "words")
    symbol, grid, block, shared_bytes, _, values, sizes = next(
        r for r in rows if np.prod(r[1]) * r[2][0] <= 512 and r[4].startswith("rw")
    )
    ptx = compiled(kernels[symbol], symbol, "sm_90").ptx.decode("ascii")
    given = tuple((kind, value) for kind, value in values)
    for number in range(len(sizes)):
        memory = [np.zeros(n - (i == number), np.uint8) for i, n in enumerate(sizes)]
        with pytest.raises(AssertionError, match="outside of its array"):
            ptx_machine.run(ptx, tuple(grid), block[0], memory, given, shared_bytes)
