"""First layers in 16 bits, whose sums run over taps with their few channels on tensor cores, as compiled."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any, Final

import numpy as np
import pytest
from gpu_kernels.convolutions import ROUNDING, convolution, drawn_windows
from gpu_kernels.on_ptx_machine import on_machine
from op_laws.evaluation import apply
from thinning import taken

from dslc.compiler.codegen.cuda.contraction import packed_taps as kernels
from dslc.compiler.codegen.cuda.contraction.direct import packed
from dslc.compiler.codegen.cuda.contraction.kernel import AddParts
from dslc.compiler.codegen.cuda.contraction.packed_taps import PackedConv, PackedSums
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.spatial import few_channels as rule

KINDS: Final = ("conv", "conv_wgrad")
HALF: Final = (DType.BF16, DType.F16)


@pytest.fixture(autouse=True)
def of_small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also few places have the kernels, and blocks compute several tiles."""
    monkeypatch.setattr(rule, "_MIN_PLACES", 1)
    monkeypatch.setattr(rule, "_MOST_FIRST", 0)
    monkeypatch.setattr(rule, "_MOST_ON_CORES", 0)
    monkeypatch.setattr(kernels, "_MULTIPROCESSORS", 1)


def right(kind: str, dtype: DType, sizes: dict[str, Any], seed: int = 0) -> None:
    """The kernels' result, within some roundings of the reference in f64."""
    node, xs = convolution(kind, True, dtype, sizes, seed)
    wanted_specs = [PackedConv] if kind == "conv" else [PackedSums, AddParts]
    assert [type(launch.spec) for launch in lower(node) or []] == wanted_specs
    [wanted] = apply(node.op, [v.astype(np.float64) for v in xs], dict(node.attrs))
    [got] = on_machine(node, xs)
    scale = np.abs(wanted).max(initial=1.0)
    assert np.abs(got.astype(np.float64) - wanted).max(initial=0.0) <= 2 * ROUNDING[dtype] * scale


@pytest.mark.parametrize(("kind", "dtype", "few"), taken(product(KINDS, HALF, (1, 2, 3, 4)), 4))
def test_the_kernels_agree_with_the_reference(kind: str, dtype: DType, few: int, fuzz_seed: int) -> None:
    rng = Random(f"{fuzz_seed} {kind} {dtype} {few}")
    right(kind, dtype, next(filter(packs, (drawn(rng, few) for _ in range(50)))), fuzz_seed)


def drawn(rng: Random, few: int) -> dict[str, Any]:
    sizes = drawn_windows(rng, rng.choice((1, 2, 2, 3)))
    *space, width = sizes["space"]
    changed = {"dilation": (1,) * len(sizes["taps"]), "space": (*space, width + rng.choice((2, 20)))}
    return sizes | changed | {"into": few, "out": rng.choice((16, 24, 40, 72))}


def packs(sizes: dict[str, Any]) -> bool:
    return packed(convolution("conv", True, DType.BF16, sizes, 0)[0]) is not None


#: First layers of published models, small.
NAMED: Final = {
    "resnet": {"taps": (7, 7), "stride": (2, 2), "pad": (3, 3), "dilation": (1, 1), "space": (37, 35), "out": 40},
    "mobilenet": {"taps": (3, 3), "stride": (2, 2), "pad": (1, 1), "dilation": (1, 1), "space": (24, 40), "out": 32},
    "unet": {"taps": (3, 3), "stride": (1, 1), "pad": (1, 1), "dilation": (1, 1), "space": (9, 33), "out": 48},
    "alexnet": {"taps": (11, 11), "stride": (4, 4), "pad": (2, 2), "dilation": (1, 1), "space": (19, 23), "out": 80},
    "video": {"taps": (3, 3, 3), "stride": (1, 2, 2), "pad": (1, 1, 1), "dilation": (1, 1, 1), "space": (4, 9, 17),
              "out": 16},
    "sound": {"taps": (80,), "stride": (4,), "pad": (38,), "dilation": (1,), "space": (900,), "out": 32},
}  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), taken(product(KINDS, NAMED), 4))
def test_first_layers_of_published_models(kind: str, name: str) -> None:
    right(kind, DType.BF16, {"batch": 2, "into": 1 if name == "sound" else 3, **NAMED[name]})


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_go_on_with_further_tiles(kind: str) -> None:
    """Also with windows that begin between the runs of a tile."""
    sizes = {"batch": 2, "into": 3, "out": 16, "taps": (3, 3), "stride": (1, 1), "pad": (1, 1), "dilation": (1, 1)}
    node, _ = convolution(kind, True, DType.BF16, sizes | {"space": (17, 20)}, 0)
    spec = packed(node)
    assert spec is not None and spec.copies == 2 and spec.geometry.grid[0] < 2 * 3 * 2
    right(kind, DType.BF16, sizes | {"space": (17, 20)})


def test_other_convolutions_have_none() -> None:
    def found(last: bool = True, dtype: DType = DType.BF16, **changed: Any) -> object:
        sizes = {"batch": 1, "into": 3, **NAMED["resnet"], **changed}
        return packed(convolution("conv", last, dtype, sizes, 0)[0])

    assert isinstance(found(), PackedConv)
    assert found(dtype=DType.F32) is found(last=False) is found(into=5) is found(out=20) is None
    assert found(dilation=(1, 2)) is found(stride=(7, 7), pad=(0, 0)) is found(taps=(1, 1)) is None
