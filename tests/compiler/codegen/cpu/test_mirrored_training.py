"""Training on compiled kernels: what is computed again has the bits of what would have been kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Phase
from dslc.compiler.options import Options
from dslc.runtime.session.load import load

MODEL = """nn 1
dim B in 1..64 = 6
@mirror(always)
block image(x: [B, C, H, W], out: int) -> [B, out, H, W] {
  return x |> conv(out, 3, pad=1, bias=false) |> batchnorm |> relu
}
@mirror(always)
block rows(x: [B, D]) -> [B, D] { return x + (x |> layernorm |> linear(4*D) |> gelu |> dropout(0.2) |> linear(D)) }
model Net(x: [B, 3, 12, 12]) -> [B, 5] {
  y = x |> image(8) |> image(8) |> maxpool(2) |> image(16) |> mean(over=[2, 3])
  return y |> rows |> rows |> linear(5) as head
}
train Net(label: i32[B]) {
  loss = cross_entropy(output, label)
  optimizer = sgd(lr=0.1, momentum=0.9)
}
"""


def _trained(folder: Path, mirror: str) -> tuple[list[float], dict[str, np.ndarray], int]:
    (folder / "net.nn").write_text(MODEL)
    built = pipeline.build(check_file(folder / "net.nn"), Options(mirror=mirror, provider="own"))
    step = next(p for p in built.programs if p.entry == "train_step")
    path = folder / f"{mirror}.dslc"
    path.write_bytes(built.artifact)
    rng = np.random.default_rng(0)
    with load(path, weights="init", seed=2) as session:
        losses = []
        for _ in range(4):
            x = rng.standard_normal((6, 3, 12, 12)).astype(np.float32)
            losses.append(float(session.train_step(x=x, label=rng.integers(0, 5, 6).astype(np.int32)).loss))
        return losses, dict(session.state_tensors()), sum(n.phase is Phase.MIRROR for n in step.graph.nodes)


@pytest.mark.slow
def test_compiled_kernels_compute_the_same_again(tmp_path: Path) -> None:
    losses, plain, none = _trained(tmp_path, "never")
    again, state, copies = _trained(tmp_path, "auto")
    assert none == 0 and copies >= 8
    assert again == losses and len({*losses}) == 4
    assert plain.keys() == state.keys() and any("running_mean" in name for name in state)
    for name, value in plain.items():
        assert value.tobytes() == state[name].tobytes(), name
