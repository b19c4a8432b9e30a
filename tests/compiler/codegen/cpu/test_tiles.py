"""Regions that read an input across its lines: in tiles, with remainders, of every size of element."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_kernels.native import Native
from op_laws.evaluation import values_of

from dslc.compiler.codegen.cpu.lower import lower
from dslc.compiler.codegen.cpu.region import tiles
from dslc.compiler.codegen.cpu.region.tiles import TiledKernel
from dslc.compiler.ir.op import Builder
from dslc.compiler.ops import registry

OPS = registry.ops()

#: Shapes, permutations: whole tiles, a remainder on either axis or both, the least tile, several pieces of a task, more
#: axes before, between and after.
CASES = [
    ((64, 32), (1, 0)),
    ((61, 47), (1, 0)),
    ((16, 17), (1, 0)),
    ((1030, 21), (1, 0)),
    ((3, 20, 50), (0, 2, 1)),
    ((3, 20, 5, 37), (0, 3, 2, 1)),
    ((40, 3, 36), (2, 1, 0)),
    ((2, 18, 3, 20), (3, 0, 2, 1)),
]


def _drawn(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    found = np.random.default_rng(3).integers(0, 100, shape)
    return (found % 2 == 0) if dtype == "bool" else found.astype(dtype)


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stays in the cache, and one whole tile is enough, so that small tensors have tiles."""
    monkeypatch.setattr(tiles, "_WAYS", 0)
    monkeypatch.setattr(tiles, "_WHOLE", 1e-9)


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "i8", "bool"])
def test_a_transpose_moves_every_element(dtype: str) -> None:
    for shape, perm in CASES:
        x = _drawn(shape, dtype)
        native = Native(Builder().node(OPS["transpose"], *values_of([x]), perm=perm))
        assert any(isinstance(launch.code, TiledKernel) for launch in native.launches), (shape, perm)
        for splits in (1, 3):
            [found] = native.run([x], splits)
            np.testing.assert_array_equal(found, x.transpose(perm), err_msg=f"{shape} {perm} in {splits}")


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize("shape", [(3, 40), (40, 3), (15, 15)])
def test_short_axes_have_no_tiles(shape: tuple[int, int]) -> None:
    x = _drawn(shape, "f4")
    native = Native(Builder().node(OPS["transpose"], *values_of([x]), perm=(1, 0)))
    assert not any(isinstance(launch.code, TiledKernel) for launch in native.launches)
    np.testing.assert_array_equal(native.run([x])[0], x.T)


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [((512, 512), True), ((725, 727), False), ((900, 901), True), ((60, 64), False), ((4096, 24), False)],
)
def test_lines_that_stay_in_the_cache_are_read_again(shape: tuple[int, int], wanted: bool) -> None:
    node = Builder().node(OPS["transpose"], *values_of([_drawn(shape, "f4")]), perm=(1, 0))
    launches = lower(node)
    assert launches is not None
    assert isinstance(launches[0].spec.code, TiledKernel) is wanted


@pytest.mark.usefixtures("no_cache")
def test_sizes_of_the_first_axis_share_a_kernel() -> None:
    symbols = set()
    for count in (2, 5, 8):
        x = _drawn((count, 40, 20), "f4")
        native = Native(Builder().node(OPS["transpose"], *values_of([x]), perm=(0, 2, 1)))
        np.testing.assert_array_equal(native.run([x])[0], x.transpose(0, 2, 1))
        symbols |= set(native.symbols)
    assert len(symbols) == 1
