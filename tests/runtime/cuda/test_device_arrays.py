"""Arrays of other libraries on the GPU: taken with the streams they name, given back, never copied in silence."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifacts import line_model
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.foreign_arrays import KINDS, ByDlpack, ByInterface, Tensor
from fake_gpu.gpu_model import write_gpu_line

from dslc.base.errors import InputError
from dslc.runtime.cuda import device as devices
from dslc.runtime.cuda import executor
from dslc.runtime.cuda.arrays import dlpack
from dslc.runtime.cuda.arrays.arrays import DeviceArray, foreign_array, lies_on_gpu, new_array
from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session

FEATURES = line_model.FEATURES


@pytest.fixture
def both(tmp_path: Path, machine: Callable[..., FakeDriver]) -> Iterator[tuple[FakeDriver, Session, Session]]:
    path, kernels = write_gpu_line(tmp_path, targets=("cpu", "sm_90"))
    fake = machine(**kernels.driver())
    with load(path, weights="init", device="gpu") as gpu:
        yield fake, gpu, load(path, weights="init", device="cpu", meanings=line_model.MEANINGS)


def values(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, FEATURES)).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 4, 6, 9])
def test_predict_where_the_inputs_are(both: Any, kind: type[Tensor], rows: int) -> None:
    _, gpu, cpu = both
    x = kind(values(rows), "f32")
    bytes_out = gpu.counters["bytes_out"]
    result = gpu.predict(x=x, row=2)
    assert gpu.counters["bytes_out"] == bytes_out  # nothing came to the host
    x.write(7)
    expected = cpu.predict(x=values(rows), row=2)
    for got, want in zip(result, expected, strict=True):
        assert isinstance(got, DeviceArray) and lies_on_gpu(got)
        assert got.numpy().tobytes() == want.tobytes() and got.shape == want.shape
    again = gpu.predict(x=new_from(gpu, values(rows)), row=2)  # what one gave, another takes
    assert again[0].numpy().tobytes() == expected[0].tobytes()
    x.free()


def test_rows_that_are_missing_repeat_the_last_one(both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each at its place among the program's rows."""
    _, gpu, _ = both
    places: list[int] = []
    real = executor.DeviceInput

    def noted(frame: int, name: str, offset: int, array: DeviceArray) -> Any:
        places.append(offset)
        return real(frame, name, offset, array)

    monkeypatch.setattr(executor, "DeviceInput", noted)
    for rows in (2, 3):  # of programs for 1 and for 4
        places.clear()
        gpu.predict(x=new_from(gpu, values(rows)))
        row = 4 * FEATURES
        assert [place - places[0] for place in places] == [0, *(row * n for n in range(rows, 4))]


def new_from(session: Session, data: np.ndarray) -> DeviceArray:
    device = devices.device(0)
    with device:
        array = new_array(device, "f32", data.shape)
        device.driver.copy_in(array.address, data.ctypes.data, data.nbytes, device.inbox)
        device.driver.synchronise(device.inbox)
    return array


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_on_the_inputs_of_others(both: Any, kind: type[Tensor]) -> None:
    _, gpu, cpu = both
    for step in range(5):
        x, target = values(4, step), np.arange(4, dtype=np.int32)
        on_gpu = kind(x.copy(), "f32")
        given = target if step % 2 else kind(target, "i32")
        late = gpu.train_step(x=on_gpu, target=given)
        on_gpu.write(1e9)  # and the step is not over yet
        assert late == cpu.train_step(x=x, target=target)
        on_gpu.free()
    assert gpu.evaluate(x=kind(values(7), "f32"), target=np.zeros(7, np.int32)) == cpu.evaluate(
        x=values(7), target=np.zeros(7, np.int32)
    )
    assert all(np.array_equal(gpu.weights[n], cpu.weights[n]) for n in cpu.weights)


def test_what_is_refused(both: Any) -> None:
    _, gpu, cpu = both
    x = ByDlpack(values(4), "f32")
    with pytest.raises(InputError, match="is on another device"):
        cpu.predict(x=x)
    with pytest.raises(InputError, match="has the dtype f64, expected f32"):
        gpu.predict(x=ByDlpack(values(4).astype(np.float64), "f64"))
    with pytest.raises(InputError, match=r"has the shape \[4, 2\]"):
        gpu.predict(x=ByDlpack(values(4)[:, :2].copy(), "f32"))
    turned = ByInterface(values(4), "f32")
    interface = turned.__cuda_array_interface__

    class Turned:
        __cuda_array_interface__ = {**interface, "shape": (FEATURES, 4), "strides": (4, 4 * FEATURES)}

    with pytest.raises(InputError, match="is not contiguous"):
        gpu.predict(x=Turned())

    class Masked:
        __cuda_array_interface__ = {**interface, "mask": x}

    with pytest.raises(InputError, match="it has a mask"):
        gpu.predict(x=Masked())

    class OnAnother(ByDlpack):
        def __dlpack__(self, *, stream: int) -> Any:
            return dlpack.give(self.address, 3, "f32", self.values.shape, self)

    with pytest.raises(InputError, match="lies on the GPU 3"):
        gpu.predict(x=OnAnother(values(4), "f32"))

    class Broken(ByDlpack):
        def __dlpack__(self, *, stream: int) -> Any:
            raise BufferError("requires grad")

    with pytest.raises(InputError, match="requires grad"):
        gpu.predict(x=Broken(values(4), "f32"))
    assert gpu.predict(x=x)[0].shape == (4, 2)


def test_results_live_as_long_as_somebody_has_them(both: Any) -> None:
    _, gpu, _ = both
    used = devices.memory_info().used
    y, number = gpu.predict(x=new_from(gpu, values(4)))
    capsule = y.__dlpack__(stream=5)
    expected = y.numpy()
    assert devices.memory_info().used > used
    del y, number
    gc.collect()
    taken = dlpack.take(capsule)
    assert taken.shape == (4, 2) and taken.dtype == "f32" and taken.device == (dlpack.CUDA, 0)
    assert devices.memory_info().used > used  # the capsule's taker has it
    assert not np.isnan(expected).any()
    with pytest.raises(ValueError, match="used before"):
        dlpack.take(capsule)
    del taken
    gc.collect()
    assert devices.memory_info().used == used and not dlpack._given


def test_a_capsule_that_nobody_takes(both: Any) -> None:
    _, gpu, _ = both
    used = devices.memory_info().used
    capsule = new_from(gpu, values(4)).__dlpack__()
    assert len(dlpack._given) == 1
    del capsule
    gc.collect()
    assert not dlpack._given and devices.memory_info().used == used


@pytest.mark.parametrize(
    "dtype", ["f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "b1"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
def test_every_dtype_there_and_back(both: Any, dtype: str, shape: tuple[int, ...]) -> None:
    device = devices.device(0)
    with device:
        array = new_array(device, dtype, shape)
    back = foreign_array(device, Through(array), "x", "x")
    assert (back.address, back.dtype, back.shape, back.nbytes) == (array.address, dtype, shape, array.nbytes)
    if dtype != "bf16":
        assert foreign_array(device, Interface(array), "x", "x").dtype == dtype
    else:
        assert not hasattr(array, "__cuda_array_interface__")
    for wrong in ({"copy": True}, {"dl_device": (1, 0)}):
        with pytest.raises(BufferError):
            array.__dlpack__(**wrong)  # type: ignore[arg-type]


class Through:
    def __init__(self, array: DeviceArray) -> None:
        self.__dlpack_device__ = array.__dlpack_device__
        self.__dlpack__ = array.__dlpack__


class Interface:
    def __init__(self, array: DeviceArray) -> None:
        self.__cuda_array_interface__ = array.__cuda_array_interface__


def test_rows_share_memory(both: Any) -> None:
    array = new_from(both[1], values(6))
    part = array[2:5]
    assert part.shape == (3, FEATURES) and np.array_equal(part.numpy(), array.numpy()[2:5])
    assert array[4:2].shape == (0, FEATURES) and "f32[6, 3] on gpu:0" in repr(array)
    with pytest.raises(IndexError):
        array[::2]
    for read in (np.asarray, np.array, lambda each: np.zeros(2) + each):
        with pytest.raises(TypeError, match=r"<dslc array f32\[6, 3\] on gpu:0> is not in the host's memory; `.numpy"):
            read(array)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_read_stacked_arrays_where_they_lie(
    kind: type[Tensor], tmp_path: Path, machine: Callable[..., FakeDriver]
) -> None:
    path, kernels = write_gpu_line(tmp_path, targets=("cpu", "sm_90"))
    fake = machine(**kernels.driver())
    given = {"weights": "init", "meanings": line_model.MEANINGS}
    rng = np.random.default_rng(5)
    x, target = rng.standard_normal((7, 4, FEATURES)).astype(np.float32), rng.integers(0, 10, (7, 4)).astype(np.int32)
    with load(path, device="gpu", steps_per_launch=3, **given) as gpu, load(path, device="cpu", **given) as cpu:
        there = kind(x.copy(), "f32")
        before = fake.calls.copy()
        late = gpu.train_steps(x=there, target=target)
        there.write(0)  # the owner may write it again as soon as the call has returned
        made = fake.calls - before
        # each launch of three: numbers of the steps, x and target in, results out
        assert made["cuMemcpy2DAsync"] == 2 * 4 and made["cuGraphLaunch"] == 3
        assert late == cpu.train_steps(x=x, target=target)
        assert all(np.array_equal(a, b) for a, b in zip(gpu.state_tensors().values(), cpu.state_tensors().values()))
        there.free()
