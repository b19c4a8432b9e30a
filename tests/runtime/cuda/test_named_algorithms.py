"""Algorithms of libraries as texts: listed as candidates, named by plans, and used without asking the library."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_gpu.fake_libraries import PERSISTENT, Algorithm
from fake_gpu.library_model import batch, named, opened, small

from dslc.base.errors import DslcWarning, EnvironmentFault
from dslc.runtime.artifact.instructions import Gemm, GraphOp
from dslc.runtime.cuda import device as devices
from dslc.runtime.cuda.graphs.graph import Bulk, LibraryCall
from dslc.runtime.cuda.libraries import library as interface
from dslc.runtime.cuda.libraries.registry import LIBRARIES


def product(on: Any) -> tuple[Gemm, int]:
    """A product of two matrices of ones, and its result."""
    a, out = on.array(np.ones((4, 4)), "f32"), on.array(np.zeros((4, 4)), "f32")
    room = on.room((1 << 17) + 256)
    return Gemm("cublaslt", a, a, None, None, out, room, False, False, "f32", 0.5, 0.0, "none", b"", 0, 0), out


def convolution(on: Any, dtype: str = "f32") -> tuple[GraphOp, int]:
    """A convolution of an image of ones, and its result."""
    image, result = (on.array(np.ones((1, 1, 4, 4)), dtype) for _ in range(2))
    window, room = on.array(np.ones((1, 1, 1, 1)), dtype), on.room((1 << 17) + 256)
    attrs = {"layout": "first", "compute": "f32", "stride": [1, 1], "pad": [0, 0], "dilation": [1, 1]}
    return GraphOp("cudnn", "conv", attrs, (image, window), (result,), room, -1, (), 0, 0), result


LIMIT = 1 << 20


@pytest.mark.parametrize("kind", [product, convolution])
def test_persistent_kernels_of_a_graph_count_from_one_fill(bench: Any, kind: Any) -> None:
    on, _, _ = bench
    calls = []
    for call, out in (kind(on) for _ in range(3)):
        text = next(text for text, need in on.candidates(call, LIMIT, True) if 0 < need <= PERSISTENT)
        calls.append((named(call, text), out))
    device, placed, noted = on.device, [], []
    for call, out in calls:
        on.fill(out)
        on.fill(call.workspace)
        made = on.libraries.call(call, on.buffers, on.place)
        placed.append((0, LibraryCall(made, on.libraries.recorder, "w net.nn:3")))
    stream = device.driver.stream(noted)
    graph = Bulk(device, placed, stream, on.owned)
    assert (on.fake.calls["cuGraphDestroyNode"], on.fake.calls["cuGraphAddMemsetNode"]) == (len(calls), 1)
    for _ in range(2):
        graph.launch(stream)
        device.driver.synchronise(stream)
        for call, out in calls:
            b, room = on.buffers[out], on.buffers[call.workspace]
            assert (on.fake.array(on.base + b.offset, "u1", (b.bytes,)) != 0x7F).any()
            assert (on.fake.array(on.base + room.offset, "u1", (room.bytes,)) == 0x7F).all(), "the plan's workspace"
            on.fill(out)
    device.driver.let_go(noted)


def test_a_large_workspace_of_a_graph_is_the_plan_s(bench: Any) -> None:
    on, lt, _ = bench
    call, out = product(on)
    [large] = [a for a in lt.algorithms if a.need > PERSISTENT and a.reduction == 2]
    on.run(named(call, large.text), out, True)
    assert not on.fake.calls["cuGraphGetRootNodes"] and not on.fake.calls["cuGraphAddMemsetNode"]


@pytest.mark.parametrize("kind", [product, convolution])
@pytest.mark.parametrize("deterministic", [True, False])
def test_every_candidate_runs_from_its_text_without_a_question(bench: Any, kind: Any, deterministic: bool) -> None:
    on, lt, dnn = bench
    call, out = kind(on)
    found = on.candidates(call, LIMIT, deterministic)
    assert len(dict(found)) == len(found) > 1
    assert on.default(call) in found
    expected = on.run(call, out, True)
    for text, need in found:
        on.fill(out)
        asked = lt.calls["cublasLtMatmulAlgoGetHeuristic"], dnn.calls["heuristics"]
        given = replace(named(call, text), workspace=on.room(need + 256))
        assert np.array_equal(on.run(given, out, False), expected), text
        assert list(on.libraries.choices.values())[-1] == text
        questions = lt.calls["cublasLtMatmulAlgoGetHeuristic"], dnn.calls["heuristics"]
        assert questions == asked or "_k0=" in text  # the package has no name for this knob
        if need:
            short = replace(given, workspace=on.room(need + 255))
            with pytest.raises(EnvironmentFault, match=r"workspace|Deselecting") as caught:
                on.run(short, out, False)
            assert caught.value.code == "R202" and text in caught.value.message


def test_candidates_keep_to_the_limit_and_are_reproducible(bench: Any) -> None:
    on, lt, dnn = bench
    call, _ = product(on)
    texts = {a: a.text for a in lt.algorithms}
    first, aligned, in_place, parts, alone, narrow, secret, last = lt.algorithms
    assert on.candidates(call, LIMIT, True) == [(a.text, a.need) for a in (first, parts, alone, last)]
    assert on.candidates(call, LIMIT, False) == [(a.text, a.need) for a in (first, in_place, parts, alone, last)]
    assert on.candidates(call, parts.need, True) == [(a.text, a.need) for a in (first, parts, alone, last)]
    assert on.candidates(call, parts.need - 1, True) == [(a.text, a.need) for a in (first, alone, last)]
    assert texts[aligned] not in dict(on.candidates(call, LIMIT, False))  # a plan aligns to 64 bytes
    assert texts[narrow] not in dict(on.candidates(call, LIMIT, False))  # sums in f32
    assert texts[secret] not in dict(on.candidates(call, LIMIT, False))  # its text does not say all
    call, _ = convolution(on)
    parted = [("eng7_k2=2_k0=1", 64), ("eng7_k2=2_k0=5", 64)]
    assert on.candidates(call, LIMIT, True) == [("eng1", 0), *parted]
    assert on.candidates(call, 63, True) == [("eng1", 0)]
    assert on.candidates(call, LIMIT, False) == [("eng20_k2=1", 0), ("eng1", 0), *parted]
    call, _ = convolution(on, "bf16")
    assert ("eng5_k2=4_k13=0", 1 << 16) in on.candidates(call, LIMIT, True)
    dnn.proposes["B"] = ()  # a mode that has nothing is none of the others' faults
    assert on.candidates(call, 0, True) == [("eng1", 0)]
    for name in ("cublasLtMatmulAlgoConfigGetAttribute", "cublasLtMatmulAlgoCapGetAttribute"):
        lt.refuses = {name}
        with pytest.raises(EnvironmentFault, match=name) as caught:  # a fault is no reason to propose less
            on.candidates(product(on)[0], LIMIT, True)
        assert caught.value.code == "R206"
    lt.refuses = set()
    dnn.plans = lt.algorithms = []
    for call, _ in (product(on), convolution(on)):
        for ask in (lambda: on.candidates(call, LIMIT, True), lambda: on.default(call)):  # noqa: B023
            with pytest.raises(EnvironmentFault, match="has no ") as caught:
                ask()
            assert caught.value.code == "R202"


def test_the_default_is_of_the_first_mode_that_proposes_one(bench: Any) -> None:
    on, _, dnn = bench
    call, _ = convolution(on)
    asked = [("eng1", 1), ("eng7_k2=2_k0=1", 2), ("eng1", 3)]  # the default, and after how many questions
    for mode, (name, questions) in zip(("A", "B", "FALLBACK"), asked):
        dnn.calls.clear()
        assert on.default(call)[0] == name and dnn.calls["heuristics"] == questions
        dnn.proposes[mode] = ()
    with pytest.raises(EnvironmentFault, match=r"has no plan \(no engine for this graph\)") as caught:
        on.default(call)
    assert caught.value.code == "R202"


def test_the_default_is_on_tensor_cores_if_they_multiply_the_dtype(bench: Any) -> None:
    """Also where a mode names a plan without them first, or has only such plans; of f32 without TF32, none may."""
    on, _, dnn = bench
    dnn.plans.sort(key=lambda plan: "TENSOR_CORE" in plan[2])
    half, exact = convolution(on, "bf16")[0], convolution(on)[0]
    rounded = replace(exact, attrs={**exact.attrs, "compute": "tf32"})
    for modes in ({}, {"A": ("eng1",)}):
        dnn.proposes.update(modes)
        assert [on.default(call)[0] for call in (half, rounded, exact)] == ["eng5_k2=4_k13=0"] * 2 + ["eng1"]
    dnn.proposes["B"] = ("eng7",)
    assert [on.default(call)[0] for call in (half, rounded, exact)] == ["eng1"] * 3


def test_a_named_algorithm_is_used_or_refused_by_name(bench: Any) -> None:
    on, _, dnn = bench
    (gemm, _), (graph, result) = product(on), convolution(on)
    for plan in ("eng20_k2=1", "eng7_k0=1_k2=2"):  # cuDNN says the knobs of the second in another order
        assert np.array_equal(on.run(named(graph, plan), result, False), np.ones((1, 1, 4, 4)))
    for wrong, word in [
        (named(gemm, Algorithm(id=1).text), "it has no algorithm with this id"),
        (named(gemm, Algorithm(tile=99).text), "it does not support that"),
        (named(gemm, Algorithm(tile=18, aligned=128).text), "it needs addresses that are multiples of 128"),
        (named(gemm, Algorithm(inner=1 << 16).text), "no configuration of an algorithm"),
        (named(gemm, Algorithm().text + " "), "no configuration of an algorithm"),
        (replace(gemm, algorithm=bytes(range(192, 256))), "no configuration of an algorithm"),
        (named(graph, "eng9_k2=1"), "CUDNN_STATUS_NOT_SUPPORTED"),
        (named(graph, "eng5_k2=4_k13=0"), "Deselecting"),  # f32 by tensor cores
        (named(graph, "eng6"), "Deselecting"),  # it compiles
        (named(graph, "eng7_k0=2_k2=2"), "it proposes no such plan"),
    ]:
        on.array(np.ones(16), "f32")  # 64 bytes on: the next problem's addresses are aligned no better
        with pytest.raises(EnvironmentFault) as caught:
            on.run(wrong, result, False)
        title = "cuBLASLt 13.1.0" if isinstance(wrong, Gemm) else "cuDNN 9.19.0"
        assert caught.value.code == "R202" and word in caught.value.message, caught.value.message
        assert caught.value.message.startswith(f"{title} cannot run `") and "f32[" in caught.value.message
        assert "dslc tune" in str(caught.value.help)
    for wrong, word in [
        (replace(gemm, epilogue="relu"), "epilogue relu"),
        (replace(gemm, beta=0.5), "beta 0.5"),
        (replace(gemm, provider="blas"), "a call of blas"),
        (replace(gemm, provider="cudnn"), "a product by cudnn"),
        (replace(graph, provider="cublaslt"), "an operation graph of cublaslt"),
    ]:
        with pytest.raises(EnvironmentFault, match=word) as caught:
            on.run(wrong, result, False)
        assert caught.value.code == "R202"
    dnn.plans = dnn.plans[:3]
    with pytest.raises(EnvironmentFault, match="none of its plans satisfies the rules"):
        on.run(replace(graph, workspace=None), result, False)


NAMED = {"cublaslt": Algorithm().text, "cudnn": "eng1"}


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        ((), ""),
        (("cublaslt 13.1.0, driver 580.1, dslc 0.1", "cudnn 9.19.0, driver 580.1"), ""),
        (("cublaslt 13.1.0", "cudnn 9.18.1, driver 1"), "cuDNN 9.18.1, here is 9.19.0: their times"),
        (
            ("cudnn 9.18.1", "cudnn 9.19.0", "cublaslt 13.0.0"),
            "cuBLASLt 13.0.0, here is 13.1.0 and with cuDNN 9.18.1, here is 9.19.0: their times",
        ),
    ],
)
def test_an_artifact_that_names_all_algorithms_asks_no_library(
    tmp_path: Path,
    machine: Any,
    libraries: Any,
    monkeypatch: pytest.MonkeyPatch,
    measured: Sequence[str],
    said: str,
) -> None:
    monkeypatch.setattr("dslc.runtime.cuda.libraries.libraries._WORTH_TELLING", 0.0)
    losses, expected = [], None
    for algorithms in (None, NAMED):
        (tmp_path / str(algorithms is None)).mkdir()
        more = measured if algorithms else ()
        path, kernels = small(tmp_path / str(algorithms is None), monkeypatch, algorithms, more)
        fake = machine(**kernels.driver())
        lt, dnn = libraries(fake)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with opened(path, device="gpu") as session:
                losses.append([session.train_step(**batch(i)).loss for i in range(3)])
                expected = expected or dnn.built[-1]
        codes = [w.message.code for w in told if isinstance(w.message, DslcWarning)]
        asked = lt.calls["cublasLtMatmulAlgoGetHeuristic"], dnn.calls["heuristics"]
        if algorithms is None:
            assert codes == ["W007"] and all(asked)
        else:
            assert codes == (["W010"] if said else []) and asked == (0, 0)
            assert said in str(told[-1].message if told else "") and dnn.calls["replays"] == dnn.calls["graphs"] > 0
        devices.device(0).close()
        assert fake.leaks() == {}
    assert losses[0] == losses[1]


def test_an_algorithm_that_is_not_there_fails_the_load_at_its_line(
    tmp_path: Path, machine: Any, libraries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kernels = small(tmp_path, monkeypatch, {**NAMED, "cudnn": "eng3_k2=1"})
    fake = machine(**kernels.driver())
    lt, dnn = libraries(fake)
    with pytest.raises(EnvironmentFault, match=r"cuDNN 9.19.0 cannot run `eng3_k2=1` for conv") as caught:
        opened(path, device="gpu")
    assert caught.value.code == "R202" and "small.nn:" in str(caught.value.place)
    assert not dnn.calls["heuristics"] and not lt.objects and not dnn.objects
    devices.device(0).close()
    assert fake.leaks() == {}


def test_each_library_says_what_it_is() -> None:
    for name, of in LIBRARIES.items():
        assert of().name == name and of().title and issubclass(of(), interface.Library)
