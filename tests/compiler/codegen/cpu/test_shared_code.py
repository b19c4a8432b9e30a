"""Kernels that launches of other sizes share: their numbers are arguments, and the results are those of constants.

``Native(known=True)`` runs the same kernels with these numbers as constants. The bits must be equal for every op of
op_samples that has such kernels, for tails, and on each level that this machine runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cpu_kernels.native import Native
from op_laws.evaluation import apply, values_of
from op_samples.every import SAMPLES
from thinning import taken

from dslc.base.errors import DslcError
from dslc.compiler.codegen.cpu.levels import LEVELS
from dslc.compiler.codegen.cpu.lower import lower
from dslc.compiler.codegen.cpu.region.size_generic import RegionLaunch
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops import registry
from dslc.runtime.cpu.levels import machine_level

OPS = registry.ops()
RUNS = [*LEVELS][: 1 + [*LEVELS].index(machine_level(tuple(LEVELS)))] if os.uname().machine == "x86_64" else ["armv8_2"]
KEY = 0xF123456789ABCDEF
SCALARS = [np.array(v, np.int64) for v in (-3, (1 << 40) + 7, 5)]


def node_of(name: str, xs: Sequence[np.ndarray], **attrs: Any) -> Node:
    return Builder(name="here").node(OPS[name], *values_of(list(xs)), **attrs)


def launches_of(node: Node) -> list[Launch]:
    found = lower(node)
    assert found is not None
    return found


def same_bits(node: Node, xs: Sequence[np.ndarray], level: str) -> None:
    got, wanted = Native(node, level).run(xs, splits=2), Native(node, level, known=True).run(xs)
    for g, w in zip(got, wanted, strict=True):
        assert g.dtype == w.dtype and g.tobytes() == w.tobytes()


def drawn(x: np.ndarray, name: str) -> list[np.ndarray]:
    return [x, *SCALARS] if name == "dropout" else SCALARS if name == "rand" else SCALARS[:1]


def attrs_of(name: str, shape: tuple[int, ...], key: int = KEY, p: float = 0.25) -> dict[str, Any]:
    if name == "dropout":
        return {"p": p, "key": key, "row_elements": shape[-1]}
    made: dict[str, Any] = {"shape": shape, "dtype": DType.F32, "key": key}
    return {**made, "row_elements": shape[-1]} if name == "rand" else {**made, "low": -p, "high": p}


def cut(x: np.ndarray, *starts: int) -> Node:
    """Pieces of 20 rows, or of 600 elements of each row."""
    stops = tuple(
        n if not start else start + (600 if axis else 20) for axis, (n, start) in enumerate(zip(x.shape, starts))
    )
    return node_of("slice", [x], starts=starts, stops=stops, steps=(1, 1))


def random(name: str, x: np.ndarray) -> Node:
    return node_of(name, drawn(x, name), **attrs_of(name, x.shape, KEY ^ x.size, 1 / x.shape[1]))


#: Two shapes, and a node for a shape: the two nodes differ only in numbers that are arguments.
PAIRS: dict[str, tuple[tuple[int, ...], tuple[int, ...], Callable[[np.ndarray], Node]]] = {
    "pointwise": ((1000,), (25_000,), lambda x: node_of("tanh", [x])),
    "pointwise of one piece": ((21,), (37,), lambda x: node_of("tanh", [x])),
    "rows": ((2, 600), (64, 600), lambda x: node_of("softmax", [x], axis=1)),
    "bias": ((3, 700), (9, 700), lambda x: node_of("add", [x, x[0]])),
    "any rest of a line of a long function": ((1600,), (25_003,), lambda x: node_of("tanh", [x])),
    "channels of short rows": ((2, 96, 64), (2, 31, 64), lambda x: node_of("sum", [x], over=(0, 2), keep=False)),
    "channels of short lines": ((40, 64), (131, 64), lambda x: node_of("mul", [x, x[:, :1]])),
    "lengths of lines": ((3, 160), (5, 704), lambda x: node_of("add", [x, x[0]])),
    "some rows": ((40, 600), (60, 600), lambda x: cut(x, len(x) // 3, 0)),
    "part of each row": ((9, 1000), (9, 1300), lambda x: cut(x, 0, x.shape[1] - 600)),
    "mask": ((40, 3), (7, 130), lambda x: random("dropout", x)),
    "noise": ((40, 3), (7, 130), lambda x: random("rand", x)),
    "initial values": ((40, 3), (7, 130), lambda x: random("init_uniform", x)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_nodes_that_differ_in_given_numbers_have_one_kernel(name: str) -> None:
    *shapes, make = PAIRS[name]
    one, other = (launches_of(make(np.zeros(shape, np.float32))) for shape in shapes)
    assert [x.symbol for x in one] == [x.symbol for x in other]
    assert [x.scalar_args for x in one] != [x.scalar_args for x in other]


def samples() -> list[tuple[str, int]]:
    every = [
        (name, n) for name in sorted(SAMPLES) if name in OPS and not OPS[name].view for n in range(len(SAMPLES[name]))
    ]
    return taken(every, 12)


def sample(name: str, number: int) -> tuple[Node, list[np.ndarray]]:
    found = SAMPLES[name][number]
    xs = [np.asarray(x, np.float32) if x.dtype == np.float64 else x for x in found.arrays(name)]
    return node_of(name, xs, **{k: DType.F32 if v is DType.FLOAT else v for k, v in found.attrs.items()}), xs


@pytest.mark.parametrize(("name", "number"), samples())
def test_moved_tensors_share_code(name: str, number: int) -> None:
    """An offset never makes a kernel of its own if a tensor already begins somewhere else."""
    for launch in lower(sample(name, number)[0]) or ():
        if not isinstance(launch.spec, RegionLaunch):
            continue
        region = launch.spec.region
        moved = [
            replace(region, inputs=tuple(replace(x, offset=x.offset + by) for x in region.inputs))
            for by in (1, 64, 999)
        ]
        assert len({replace(launch, spec=RegionLaunch(each)).symbol for each in moved}) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), samples())
def test_samples_have_the_bits_of_constants(name: str, number: int) -> None:
    node, xs = sample(name, number)
    if not any(launch.scalar_args for launch in lower(node) or ()):
        return
    try:
        apply(node.op, xs, node.attrs)
    except DslcError:
        return  # data that the entrance refuses
    same_bits(node, xs, RUNS[-1])


@pytest.mark.parametrize("level", RUNS)
@pytest.mark.parametrize("length", [1, 15, 16, 17, 47, 600, 8200])
def test_tails_have_the_bits_of_constants(length: int, level: str) -> None:
    rng = np.random.default_rng(length)
    x = rng.standard_normal((3, length)).astype(np.float32)
    same_bits(node_of("tanh", [x[0]]), [x[0]], level)
    same_bits(node_of("add", [x, x[0]]), [x, x[0]], level)
    same_bits(node_of("softmax", [x], axis=1), [x], level)
    same_bits(node_of("sum", [x], over=(0,), keep=False), [x], level)
    several = np.stack([x, -x, 2 * x, x + 1]).reshape(2, 2, 3, length)
    same_bits(node_of("transpose", [several], perm=(2, 0, 1, 3)), [several], level)
    same_bits(node_of("sum", [several], over=(0, 2, 3), keep=False), [several], level)
    moved = np.asarray(several[:, :, :1, :1])
    same_bits(node_of("mul", [several, moved]), [several, moved], level)


@pytest.mark.parametrize("level", RUNS)
@pytest.mark.parametrize("name", ["dropout", "rand", "init_uniform", "init_normal"])
def test_draws_have_the_bits_of_constants(name: str, level: str) -> None:
    for elements in (23, 4097):
        x = np.random.default_rng(elements).standard_normal(elements).astype(np.float32)
        attrs = attrs_of(name, x.shape)
        if name == "init_normal":
            attrs = {"mean" if k == "low" else "std" if k == "high" else k: v for k, v in attrs.items()}
        same_bits(node_of(name, drawn(x, name), **attrs), drawn(x, name), level)
