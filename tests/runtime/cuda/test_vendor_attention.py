"""Attention by cuDNN: what the compiler asks for, on the pretended GPU, is what the node means."""

from __future__ import annotations

import random
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from fake_gpu.fake_libraries import numbers, put

from dslc.compiler.codegen.cuda.libraries import library
from dslc.compiler.codegen.cuda.libraries.cudnn_attention import VendorAttention, attention_call
from dslc.compiler.codegen.cuda.libraries.library import NoCall
from dslc.compiler.codegen.cuda.libraries.registry import chosen_call, library_call
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.targets import target_of
from dslc.compiler.ir.choice import Choice
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.compound.strided_attention import View, strided, whole
from dslc.compiler.ops.products.attention import sdpa, sdpa_grad
from dslc.runtime.artifact.library_check import graph_fault

Shape = tuple[int, ...]


def values(dtype: DType, *shapes: Shape) -> list[Any]:
    return [Input(f"x{n}", Kind.DATA, TensorType(dtype, shape)).value for n, shape in enumerate(shapes)]


def attention(q: Shape, k: Shape, v: int, causal: bool, dtype: DType = DType.BF16, **more: Any) -> Node:
    operands = values(dtype, q, k, (*k[:-1], v))
    return Builder().node(sdpa, *operands, **{"scale": q[-1] ** -0.5, "causal": causal, **more})


def masked(node: Node) -> Node:
    q, k = node.input_types[:2]
    return Builder().node(sdpa, *node.inputs, *values(DType.B1, (q.ints[-2], k.ints[-2])), **node.attrs)


def gradient(node: Node) -> Node:
    [dy] = values(node.types[0].dtype, node.types[0].ints)
    return Builder().node(sdpa_grad, *node.inputs, *node.outputs, dy, **node.attrs)


def of_one_tensor(batch: int, heads: int, length: int, features: int, causal: bool) -> tuple[Node, Node]:
    """An attention of q, k and v that lie in one tensor [B, T, 3, H, d], its result as [B, T, H, d], and its gradient,
    whose results are in one tensor, too."""
    row = (batch, heads, length, features)
    plain = attention(row, row, features, causal)
    [source] = values(DType.BF16, (batch, length, 3, heads, features))
    step = heads * features
    parts = [View(row, (3 * length * step, features, 3 * step, 1), n * step) for n in range(3)]
    y = View(row, (length * step, features, step, 1))
    lse = whole(row[:3])
    made = strided(plain, [source] * 3, parts, [(0, y), (1, lse)], [(batch, length, heads, features), row[:3]])
    [dy] = values(DType.BF16, (batch, length, heads, features))
    return made, strided(
        gradient(plain), [source] * 3 + [*made.outputs, dy], [*parts, y, lse, y],
        [(0, part) for part in parts], [source.type.ints],
    )  # fmt: skip


def cases(seed: int) -> list[Node]:
    draw, found = random.Random(seed), list[Node]()
    for number in range(12):
        length = draw.randint(33, 70)
        keys = length if number % 2 else draw.randint(33, 70)
        share, heads = draw.choice([1, 1, 2, 3]), draw.randint(1, 2)
        lead = draw.choice([(), (2,), (2, 2)]) if share == 1 else (2,)
        d, e = (8 * draw.randint(4, 6) for _ in range(2))
        q, k = (*lead, heads * share, length, d), (*lead, heads, keys, d)
        near = {"window": draw.randint(1, length + 3)} if number % 2 and number > 4 else {}
        node = attention(q, k, e, number % 4 == 1, DType.F16 if number % 3 == 0 else DType.BF16, **near)
        found += [node, gradient(node)]
    for _ in range(3):
        found += of_one_tensor(draw.randint(1, 3), draw.randint(1, 3), draw.randint(48, 64), 32, draw.random() < 0.5)
    return found


def rounded(x: np.ndarray, dtype: str) -> np.ndarray:
    stored = np.zeros(x.shape, {"bf16": np.uint16, "f16": np.float16, "f32": np.float32}[dtype])
    put(stored, x, dtype)
    return numbers(stored, dtype)


def test_random_attention(bench: Any, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "MIN_WORK", 0)
    on, _, _ = bench
    rng = np.random.default_rng(fuzz_seed)
    for number, node in enumerate(cases(fuzz_seed)):
        call = attention_call(node)
        assert isinstance(call, VendorAttention), (call, node)
        on.end, on.buffers = 0, []
        xs = {v: rounded(rng.standard_normal(v.type.ints), v.type.dtype.value) for v in node.inputs}
        at = {v: on.array(xs[v], v.type.dtype.value) for v in node.inputs}
        outs = [on.array(np.zeros(t.ints), t.dtype.value) for t in node.types]
        instruction = call.instruction([*(at[v] for v in node.inputs), *outs], on.room(1 << 16), 0)
        assert graph_fault(instruction, on.buffers) is None
        wanted = node.op.meaning([xs[v] for v in node.inputs], node.attrs)
        for out, each in zip(outs, wanted):
            on.fill(out)
            found = on.run(instruction, out, number % 2 == 0)
            assert np.abs(found - each).max() <= 2**-8 * np.abs(each).max(), node


GPT2 = attention((16, 12, 1024, 64), (16, 12, 1024, 64), 64, True)
WIDE = attention((4, 8, 2048, 256), (4, 8, 2048, 256), 256, True)
FEW = attention((4, 8, 256, 64), (4, 8, 256, 64), 64, True)
CALLED = [GPT2, gradient(GPT2), WIDE, gradient(WIDE), of_one_tensor(32, 12, 1024, 64, True)[1]]


@pytest.mark.parametrize("number", range(len(CALLED)))
def test_the_library_is_the_rule_where_the_model_says_that_it_is_faster(number: int) -> None:
    node = CALLED[number]
    [launch] = target_of("sm_90", vendor=True).lower(node)  # type: ignore[misc]
    assert isinstance(launch.spec, VendorAttention)
    for target in (target_of("sm_90"), target_of("sm_80", vendor=True), target_of("sm_100", vendor=True)):
        assert not any(isinstance(each.spec, VendorAttention) for each in target.lower(node) or ())
    assert library_call(node, "sm_80") == NoCall("cuDNN's attention was measured on sm_90 alone")


def test_own_kernels_are_the_rule_elsewhere_and_a_choice_names_the_library() -> None:
    for made in (FEW, gradient(FEW), *of_one_tensor(4, 4, 128, 64, False)):
        target = target_of("sm_90", vendor=True)
        assert library_call(made, "sm_90") == NoCall("own kernels are as fast at these sizes")
        assert target.library(made) == "cudnn"
        assert not isinstance(target.lower(made)[0].spec, VendorAttention)  # type: ignore[index]
        launch = chosen_call(made, Choice("cudnn", "eng6_k24=26", 1 << 20))
        assert isinstance(launch, Launch) and launch.reads == made.inputs and launch.writes[:-1] == made.outputs
        instruction = launch.spec.instruction([*range(len(made.inputs) + len(made.outputs))], 99, 0)
        assert (instruction.engine, instruction.knobs) == (6, ((24, 26),))


def test_what_was_not_measured_is_not_the_rule() -> None:
    node = attention((16, 12, 1024, 64), (16, 12, 1024, 64), 128, True)
    assert library_call(node, "sm_90") == NoCall("64 and 128 features, which were not measured")


#: Bytes that cuDNN 9.19 asked for on an H200: queries, keys, the other sizes.
ROOMS = [
    ((16, 12, 1024, 64), (16, 12, 1024, 64), 403_439_872),
    ((32, 12, 128, 64), (32, 12, 128, 64), 12_779_776),
    ((8, 12, 1024, 64), (8, 4, 1024, 64), 226_885_888),
    ((4, 16, 2048, 128), (4, 1, 2048, 128), 604_504_320),
    ((2, 3, 100, 40), (2, 3, 77, 40), 199_264),
    ((2, 3, 1, 64), (2, 3, 100, 64), 98_584),
    ((4, 8, 2048, 256), (4, 8, 2048, 256), 268_697_856),
    ((8, 32, 1024, 128), (8, 8, 1024, 128), 672_137_472),
]


@pytest.mark.parametrize(("q", "k", "need"), ROOMS)
def test_a_gradient_is_given_what_it_needs(q: Shape, k: Shape, need: int) -> None:
    call = attention_call(gradient(attention(q, k, k[-1], False)))
    if isinstance(call, NoCall):
        assert call == NoCall("few multiply-adds") and prod(q) * k[-2] < 1 << 20
        return
    assert need + 256 <= call.room <= need + (64 << 10) + 256


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (masked(attention((4, 8, 128, 64), (4, 8, 128, 64), 64, False)), "a mask"),
        (attention((4, 8, 128, 64), (4, 8, 128, 64), 64, True, DType.F32), "f32"),
        (attention((4, 8, 128, 60), (4, 8, 128, 60), 64, True), "60 and 64 features"),
        (attention((4, 8, 128, 64), (4, 8, 128, 64), 264, True), "64 and 264 features"),
        (attention((4096, 8, 1, 64), (4096, 8, 1, 64), 64, False), "one query and one key"),
        (attention((4, 8, 128, 64), (4, 8, 128, 64), 64, True, scale=0.0), "a scale of 0 or less"),
        (attention((2, 8, 16, 16), (2, 8, 16, 16), 16, True), "few multiply-adds"),
        (gradient(attention((4, 16, 4096, 128), (4, 16, 4096, 128), 128, True)), "scores that take more than 2 GiB"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_it_is_not_for(node: Node, why: str) -> None:
    assert attention_call(node) == NoCall(why)


def test_calls_that_do_not_fit_are_refused(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each number of the attributes, if it is larger, is refused: it lies elsewhere, or does not fit the others."""
    monkeypatch.setattr(library, "MIN_WORK", 0)
    on, _, _ = bench
    for node in of_one_tensor(2, 2, 64, 32, True):
        call = attention_call(node)
        assert isinstance(call, VendorAttention)
        on.end, on.buffers = 0, []
        at = {v: on.array(np.zeros(v.type.ints), v.type.dtype.value) for v in node.inputs}
        outs = [on.array(np.zeros(t.ints), t.dtype.value) for t in node.types]
        good = call.instruction([*(at[v] for v in node.inputs), *outs], on.room(1 << 16), 0)
        refused = 0
        for name in ("reads", "writes"):
            for number, row in enumerate(good.attrs[name]):
                for place, each in enumerate(row):
                    for axis in range(4) if isinstance(each, list) else [None]:
                        for more in (1, 1 << 20):
                            rows = [list(x) for x in good.attrs[name]]
                            if axis is None:
                                rows[number][place] += more
                            else:
                                rows[number][place] = [n + more * (i == axis) for i, n in enumerate(each)]
                            bad = replace(good, attrs={**good.attrs, name: rows})
                            why = graph_fault(bad, on.buffers)
                            assert why is not None, (name, number, place, axis, more)
                            refused += 1
        assert refused > 80
        for attrs in (
            {**good.attrs, "scale": 0.0}, {**good.attrs, "scale": 1}, {**good.attrs, "causal": 1},
            {**good.attrs, "more": 1}, {**good.attrs, "window": 0}, {**good.attrs, "window": True},
            {**good.attrs, "reads": good.attrs["reads"][1:]}, {},
        ):  # fmt: skip
            assert graph_fault(replace(good, attrs=attrs), on.buffers) is not None
        bad = replace(good, outputs=(good.inputs[0], *good.outputs[1:]))
        assert "shares bytes" in str(graph_fault(bad, on.buffers))
