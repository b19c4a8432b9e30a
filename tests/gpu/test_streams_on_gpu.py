"""Random convolutions with branches, built for the GPU that is here, on one stream and on several, with own products
and with those of cuDNN: the bits do not depend on the streams, and the two agree.

Skipped where there is no GPU, or where CUDA cannot be compiled; without cuDNN, own products alone.
``DSLC_GPU_SIZES``: how many random sizes.
"""

from __future__ import annotations

import os
import random
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_gpu.launcher import Gpu, why_not

from dslc.base.errors import EnvironmentFault
from dslc.runtime.cuda.libraries import cudnn
from dslc.runtime.session import load as loading

COUNT = int(os.environ.get("DSLC_GPU_SIZES", "20"))
MISSING = why_not() or next((f"no {n}" for n in ("numba_cuda", "lark") if find_spec(n) is None), None)
pytestmark = [
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.filterwarnings(r"ignore:\[W007\]"),
]

MODEL = """nn 1
dim B in 1..64 = {batch}
block branches(x: [B, C, H, W], out: int, k: int, s: int) -> [B, 2*out, H/s, W/s] {{
  a = x |> conv(out, k, stride=s, pad=k//2, bias=false) as a |> batchnorm as bn |> relu
  b = x |> conv(out, 1, stride=s) as b |> relu
  return concat([a, b], axis=1)
}}
model Net(image: [B, {channels}, {height}, {width}]) -> [B, 7] {{
  x = image |> conv({stem}, 3, pad=1) as stem |> relu
  x = x |> branches({first}, {k}, {s}) as one |> branches({second}, 3, 1) as two
  return x |> mean(over=[2, 3]) |> linear(7) as head
}}
train Net(label: i32[B]) {{
  loss      = cross_entropy(output, label)
  optimizer = sgd(lr=0.05, momentum=0.9)
}}
"""


def providers() -> list[str]:
    try:
        cudnn.load_cudnn()
    except EnvironmentFault:
        return ["own"]
    return ["own", "vendor"]


def sizes(rng: random.Random) -> dict[str, int]:
    s = rng.choice((1, 2))
    return {
        "batch": rng.choice((1, 3, 8, 32, 33)), "channels": rng.choice((1, 3, 8)), "k": rng.choice((1, 3, 5)), "s": s,
        "height": s * rng.randint(4, 15), "width": s * rng.randint(4, 15),
        "stem": rng.choice((8, 16, 24)), "first": rng.choice((4, 8, 32)), "second": rng.choice((8, 12, 64)),
    }  # fmt: skip


def trained(path: Path, batches: list[dict[str, Any]]) -> tuple[list[float], dict[str, np.ndarray]]:
    """The losses of a few steps, and the whole state after them."""
    with loading.load(path, device="gpu", weights="init", seed=5) as session:
        losses = [float(session.train_step(**batch, lr=0.05).loss) for batch in batches]
        return losses, {name: np.array(value) for name, value in session.state_tensors().items()}


@pytest.mark.parametrize("number", range(COUNT))
def test_streams_change_no_bit_and_cudnn_agrees(number: int, fuzz_seed: int, tmp_path: Path) -> None:
    from dslc.compiler.check.model import check_file
    from dslc.compiler.options import Options
    from dslc.compiler.pipeline import build

    chosen = sizes(random.Random(fuzz_seed * 1000 + number))
    print(chosen)
    source = tmp_path / "net.nn"
    source.write_text(MODEL.format(**chosen))
    checked, precision = check_file(source), ("f32", "bf16")[number % 2]
    rng = np.random.default_rng(number)
    shape = (chosen["batch"], chosen["channels"], chosen["height"], chosen["width"])
    batches = [
        {"image": rng.standard_normal(shape).astype(np.float32), "label": rng.integers(0, 7, shape[0]).astype(np.int32)}
        for _ in range(4)
    ]
    found: dict[str, tuple[list[float], dict[str, np.ndarray]]] = {}
    for provider in providers():
        for streams in (1, 2, 4):
            options = Options(target=Gpu().architecture, provider=provider, precision=precision, streams=streams)
            made = build(checked, options)
            [program] = [p for p in made.programs if p.entry == "train_step"]
            assert bool(program.streams) == (streams > 1)
            path = tmp_path / f"{provider}{streams}.dslc"
            path.write_bytes(made.artifact)
            losses, state = trained(path, batches)
            assert np.isfinite(losses).all()
            plain = found.setdefault(provider, (losses, state))
            assert losses == plain[0]
            assert [n for n in state if state[n].tobytes() != plain[1][n].tobytes()] == []
    if "vendor" in found:
        close = 1e-3 if precision == "f32" else 0.05
        own, vendor = (np.array(found[p][0]) for p in ("own", "vendor"))
        assert np.abs(own - vendor).max() <= close * (1 + np.abs(own).max()), (own, vendor)
