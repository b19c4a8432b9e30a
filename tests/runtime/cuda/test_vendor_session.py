"""Calls of libraries in sessions and plans on the fake driver, by fake libraries that compute what they are told."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.fake_libraries import FakeCublasLt, numbers, put
from fake_gpu.library_bench import Bench
from fake_gpu.library_model import batch, opened, small

from dslc.base.errors import DslcWarning, EnvironmentFault, OutOfMemory
from dslc.compiler.ops import registry
from dslc.compiler.ops.spatial.channels_last import to_first, to_last
from dslc.runtime.artifact.instructions import Gemm, GraphOp
from dslc.runtime.artifact.library_check import graph_fault
from dslc.runtime.cuda import device as devices
from dslc.runtime.cuda.device import Device
from dslc.runtime.cuda.owned import Owned


@pytest.mark.parametrize("bulk", [None, 0, 1])
def test_a_session_with_libraries(
    tmp_path: Path, machine: Any, libraries: Any, monkeypatch: pytest.MonkeyPatch, bulk: int | None
) -> None:
    path, kernels = small(tmp_path, monkeypatch)
    fake = machine(**kernels.driver())
    lt, dnn = libraries(fake)
    with opened(path, device="gpu", bulk=bulk) as gpu, opened(path, device="cpu") as cpu:
        before = gpu.counters
        results = [(gpu.train_step(**batch(i)), cpu.train_step(**batch(i))) for i in range(4)]
        for one, other in results:
            assert one.loss == pytest.approx(other.loss, rel=1e-5)
        after = gpu.counters
        if bulk is None:
            assert after["graph_launches"] - before["graph_launches"] == 4
            assert after["launches"] == before["launches"] and after["synchronisations"] == 0
        np.testing.assert_allclose(
            gpu.predict(image=batch(9)["image"]), cpu.predict(image=batch(9)["image"]), rtol=1e-4, atol=1e-5
        )
        # train, eval and predict of two sizes; equal problems have one plan
        assert dnn.calls["graphs"] == len(dnn.built) < sum(k.startswith("k_") for k in kernels.functions)
        assert set(dnn.built) == {"eng1"}
        if bulk is None:
            seen = lt.calls["cublasLtMatmul"]
            gpu.train_step(**batch(5))
            assert lt.calls["cublasLtMatmul"] == seen  # captured once
        bad = batch(7)
        bad["image"][0, 0, 0, 0] = np.nan
        assert gpu.find_nonfinite(**batch(7)) is None
        found, same = gpu.find_nonfinite(**bad), cpu.find_nonfinite(**bad)
        assert found is not None and same is not None and found.where == same.where
    devices.device(0).close()
    assert fake.leaks() == {} and not lt.objects and not dnn.objects


def test_equal_problems_are_prepared_once(
    tmp_path: Path, machine: Any, libraries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kernels = small(tmp_path, monkeypatch)
    lt, dnn = libraries(machine(**kernels.driver()))
    asked = []
    for contexts in (1, 2):
        before = lt.calls["cublasLtMatmulAlgoGetHeuristic"], dnn.calls["graphs"], lt.calls["cublasLtMatmul"]
        opened(path, device="gpu", contexts=contexts).close()
        after = lt.calls["cublasLtMatmulAlgoGetHeuristic"], dnn.calls["graphs"], lt.calls["cublasLtMatmul"]
        asked.append([b - a for a, b in zip(before, after)])
    assert asked[0][:2] == asked[1][:2] and 2 * asked[0][2] == asked[1][2] > 0


def test_the_first_failure_of_a_library_leaves_nothing(
    tmp_path: Path, machine: Any, libraries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kernels = small(tmp_path, monkeypatch)
    fake = machine(**kernels.driver())
    for name, code in (("AlgoGetHeuristic", "R202"), ("", "R206"), ("DescCreate", "R206"), ("LayoutCreate", "R206")):
        lt, dnn = libraries(fake)
        lt.refuses = {f"cublasLtMatmul{name}" if name != "LayoutCreate" else "cublasLtMatrixLayoutCreate"}
        with pytest.raises(EnvironmentFault) as caught:
            opened(path, device="gpu")
        assert caught.value.code == code and "small.nn:" in str(caught.value.place)
        assert not lt.objects and not dnn.objects
        assert devices.memory_info().used == 0
    devices.device(0).close()
    assert fake.leaks() == {}


def test_sessions_that_threads_open_at_once_end_no_capture_of_each_other(
    tmp_path: Path, machine: Any, libraries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that opens waits for all work of the device, which ends the captures of other threads."""
    path, kernels = small(tmp_path, monkeypatch)
    fake = machine(**kernels.driver())
    libraries(fake)
    begin = FakeDriver.do_cuStreamBeginCapture

    def telling(self: FakeDriver, stream: Any, mode: Any) -> Any:
        answer = begin(self, stream, mode)
        captures.set()  # the others go on
        return answer

    monkeypatch.setattr(FakeDriver, "do_cuStreamBeginCapture", telling)
    matmul = FakeCublasLt.do_Matmul

    def long(self: Any, *args: int) -> int:
        time.sleep(0.01)
        return matmul(self, *args)

    monkeypatch.setattr(FakeCublasLt, "do_Matmul", long)
    captures, losses = threading.Event(), list[float]()

    def work(first: bool) -> None:
        assert first or captures.wait(60)
        with opened(path, device="gpu") as gpu:
            losses.append(gpu.train_step(**batch(0)).loss)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work, number == 0) for number in range(3)]:
            done.result()
    assert len(losses) == 3 and len({*losses}) == 1
    assert not fake.refused["cuStreamEndCapture"]
    devices.device(0).close()


@pytest.mark.parametrize("times", [1, 15, 16])
def test_a_capture_that_another_library_ends_is_tried_again(
    times: int, tmp_path: Path, machine: Any, libraries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kernels = small(tmp_path, monkeypatch)
    fake = machine(**kernels.driver())
    lt, dnn = libraries(fake)
    left = [times]
    matmul = FakeCublasLt.do_Matmul

    def disturbed(self: Any, *args: int) -> int:
        if left[0]:
            left[0] -= 1
            fake.wait_for_all()
            return 13 if left[0] % 2 else matmul(self, *args)  # the library may notice, or not
        return matmul(self, *args)

    monkeypatch.setattr(FakeCublasLt, "do_Matmul", disturbed)
    if times < 16:
        with opened(path, device="gpu") as gpu, opened(path, device="cpu") as cpu:
            assert gpu.train_step(**batch(0)).loss == pytest.approx(cpu.train_step(**batch(0)).loss, rel=1e-5)
        assert fake.refused["cuStreamEndCapture"] == times
    else:
        with pytest.raises(EnvironmentFault, match="CAPTURE_INVALIDATED") as caught:
            opened(path, device="gpu")
        assert caught.value.code == "R206" and "cudaDeviceSynchronize" in str(caught.value.help)
    devices.device(0).close()
    assert fake.leaks() == {} and not lt.objects and not dnn.objects


def test_a_library_that_is_missing_is_named(
    tmp_path: Path, machine: Any, libraries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kernels = small(tmp_path, monkeypatch)
    machine(**kernels.driver())

    def missing(name: str) -> None:
        raise RuntimeError(f"{name} is not here\nand more")

    monkeypatch.setattr("cuda.pathfinder.load_nvidia_dynamic_lib", missing)
    with pytest.raises(EnvironmentFault) as caught:
        opened(path, device="gpu")
    assert caught.value.code == "R205" and "pip install 'dslc[vendor]'" in str(caught.value.help)
    assert "small.nn:" in str(caught.value.place)


def test_the_time_that_choosing_takes_is_told(
    tmp_path: Path, machine: Any, libraries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kernels = small(tmp_path, monkeypatch)
    libraries(machine(**kernels.driver()))
    clock = iter(range(100_000))
    monkeypatch.setattr("dslc.runtime.cuda.libraries.libraries._WORTH_TELLING", 1.0)
    monkeypatch.setattr("dslc.runtime.cuda.libraries.libraries.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with pytest.warns(DslcWarning, match=r"small: cuBLASLt and cuDNN took \d+\.0 s .* choose \d+ algorithms") as told:
        opened(path, device="gpu").close()
    assert [w.message.code for w in told] == ["W007"]  # type: ignore[union-attr]


def test_the_workspace_is_named_where_memory_is_short(
    tmp_path: Path, machine: Any, libraries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kernels = small(tmp_path, monkeypatch)
    libraries(machine(**kernels.driver(total=88 << 20)))
    with pytest.raises(OutOfMemory, match="the workspace of libraries"):
        opened(path, device="gpu")


def test_a_lost_gpu_is_not_asked_to_let_go(gpu: tuple[FakeDriver, Device], libraries: Any) -> None:
    fake, device = gpu
    lt, _ = libraries(fake)
    with closing(Owned(device)) as owned:
        with device:
            bench = Bench(fake, device, owned)
            a, out = bench.array(np.ones((4, 4)), "f32"), bench.array(np.zeros((4, 4)), "f32")
            asked = Gemm("cublaslt", a, a, None, None, out, None, False, False, "f32", 1.0, 0.0, "none", b"", 0, 0)
            bench.run(asked, out, True)
        calls = lt.calls.total()
        device.driver.lost = EnvironmentFault("R207", "gone")
    assert lt.calls.total() == calls


def test_random_products(bench: Any) -> None:
    on, lt, _ = bench
    choose, rng = random.Random(7), np.random.default_rng(7)
    for number in range(60):
        m, n, k, z = (choose.randint(1, 9) for _ in range(4))
        ta, tb = choose.random() < 0.5, choose.random() < 0.5
        stacks: Any = choose.choice([((), ()), ((z,), (z,)), ((z,), (1,)), ((1,), (z,))])
        dtype = choose.choice(["f32", "bf16", "f16", "f64"])
        wide = "f32" if dtype != "f64" and choose.random() < 0.3 else dtype
        a = rng.integers(-4, 5, (*stacks[0], *((k, m) if ta else (m, k)))).astype(np.float64)
        b = rng.integers(-4, 5, (*stacks[1], *((n, k) if tb else (k, n)))).astype(np.float64)
        expected = np.matmul(a.swapaxes(-1, -2) if ta else a, b.swapaxes(-1, -2) if tb else b)
        on.end, on.buffers = 0, []
        rest, row = choose.random() < 0.5, choose.random() < 0.5
        c, bias = (rng.integers(-4, 5, shape).astype(np.float64) for shape in (expected.shape, (n,)))
        beta = choose.choice([1.0, 2.0]) if rest else 0.0
        expected = expected + beta * c + bias * row
        places = [on.array(a, dtype), on.array(b, dtype), on.array(np.full(expected.shape, 7.0), wide)]
        more = [on.array(x, wide) if asked else None for x, asked in ((c, rest), (bias, row))]
        room = on.room(choose.choice([300, 5000]))
        compute = "f64" if dtype == "f64" else "f32"
        asked = Gemm("cublaslt", places[0], places[1], *more, places[2], room, ta, tb, compute, 1.0, beta, "none",
                     b"", 0, 0)  # fmt: skip
        got = on.run(asked, places[2], number % 2 == 0)
        assert np.array_equal(got, expected), asked  # small ints: exact in every type
    preference = next(e["preference"] for e in lt.log if "preference" in e)
    assert preference[3] == 2  # parts of a sum are added in f32, in one order
    assert all(preference[n] in (64, 128, 256) for n in (5, 6, 7, 8)) and preference[1] in (44, 4744)


def with_sums(
    on: Bench, choose: random.Random, rng: np.random.Generator, y: np.ndarray, dtype: str, last: bool
) -> tuple[dict[str, Any], np.ndarray]:
    """What is added to a convolution's result, with channels first: attributes and ``inputs``; and the sum."""
    kinds = choose.sample(["bias", "c"], choose.randint(0, 2))
    relu = choose.choice([True, False])
    if not kinds and not relu:
        return {}, y
    inputs = []
    for kind in kinds:
        shape = y.shape if kind == "c" else (1, y.shape[1], *(1 for _ in y.shape[2:]))
        more = rng.integers(-9, 10, shape).astype(np.float64)
        y = y + more
        inputs.append(on.array(more.transpose(to_last(more.ndim)) if last and kind == "c" else more, dtype))
        if kind == "bias":
            on.buffers[-1] = replace(on.buffers[-1], shape=(y.shape[1],))
    return {"added": kinds, "relu": relu, "inputs": inputs}, np.maximum(y, 0) if relu else y


def test_what_cannot_be_added_to_a_convolution_is_refused(bench: Any) -> None:
    on, _, _ = bench
    x, w, bias, c, y = (
        on.array(np.zeros(shape), "bf16")
        for shape in ((1, 4, 4, 8), (16, 3, 3, 8), (16,), (1, 2, 2, 16), (1, 2, 2, 16))
    )
    told = {"layout": "last", "compute": "f32", "stride": [1, 1], "pad": [0, 0], "dilation": [1, 1]}
    good = GraphOp(
        "cudnn", "conv", told | {"added": ["c", "bias"], "relu": True}, (x, w, c, bias), (y,), None, -1, (), 0, 0
    )
    assert graph_fault(good, on.buffers) is None
    for attrs, inputs in (
        ({"added": ["bias", "c"]}, good.inputs),
        ({"added": ["bias", "bias"]}, (x, w, bias, bias)),
        ({"added": ["bias"]}, good.inputs),
        ({"added": ["scale"]}, (x, w, bias)),
        ({"added": "c"}, (x, w, c)),
        ({"relu": 1}, good.inputs),
        ({"gelu": True}, good.inputs),
    ):
        assert graph_fault(replace(good, attrs=good.attrs | attrs, inputs=inputs), on.buffers) is not None, attrs
    assert graph_fault(replace(good, kind="conv_dgrad", inputs=(y, w, c, bias), outputs=(x,)), on.buffers) is not None
    assert graph_fault(replace(good, attrs=told | {"added": ["c", "bias"]}), on.buffers) is not None


@pytest.mark.parametrize("last", [True, False])
def test_random_convolutions(bench: Any, last: bool) -> None:
    on, _, dnn = bench
    choose, rng = random.Random(11), np.random.default_rng(11)
    for number in range(45):
        axes, groups = 2 + number % 2, choose.choice([1, 1, 2])
        size, k = [choose.randint(4, 8) for _ in range(axes)], [choose.randint(1, 3) for _ in range(axes)]
        attrs = {n: tuple(choose.randint(*limits) for _ in range(axes))
                 for n, limits in (("stride", (1, 3)), ("pad", (0, 2)), ("dilation", (1, 2)))}  # fmt: skip
        if any(d * (t - 1) >= s for d, t, s in zip(attrs["dilation"], k, size)):
            continue
        channels, filters = (groups * choose.randint(1, 4) for _ in range(2))
        x = rng.integers(-3, 4, (choose.randint(1, 3), channels, *size)).astype(np.float64)
        w = rng.integers(-3, 4, (filters, channels // groups, *k)).astype(np.float64)
        [y] = registry.ops()["conv"].meaning([x, w], {**attrs, "groups": groups})
        kind = choose.choice(["conv", "conv_dgrad", "conv_wgrad"])
        first, second, out = {"conv": (x, w, y), "conv_dgrad": (y, w, x), "conv_wgrad": (x, y, w)}[kind]
        given = {**attrs, "groups": groups, **({} if kind == "conv" else {"size": out.shape[2:]})}
        [expected] = registry.ops()[kind].meaning([first, second], given)
        on.end, on.buffers = 0, []
        dtype = choose.choice(["f32", "bf16"])
        rank = axes + 2
        turned = [v.transpose(to_last(rank)) if last else v for v in (first, second, np.zeros_like(expected))]
        places = [on.array(v, dtype) for v in turned]
        told = {"layout": "last" if last else "first", "compute": "f32", **{n: list(v) for n, v in attrs.items()}}
        more, expected = with_sums(on, choose, rng, expected, dtype, last) if kind == "conv" else ({}, expected)
        room = on.room((1 << 16) + 256)
        read = (places[0], places[1], *more.pop("inputs", ()))
        asked = GraphOp("cudnn", kind, told | more, read, (places[2],), room, -1, (), 0, 0)
        assert graph_fault(asked, on.buffers) is None, asked
        got = on.run(asked, places[2], number % 2 == 0)
        got = got.transpose(to_first(rank)) if last else got
        put(rounded := np.zeros(expected.shape, np.uint16 if dtype == "bf16" else np.float32), expected, dtype)
        assert np.array_equal(got, numbers(rounded, dtype)), asked
    # f32 keeps off tensor cores; both keep to what is deterministic, compiled and small
    assert set(dnn.built) == {"eng1", "eng5_k2=4_k13=0"}
