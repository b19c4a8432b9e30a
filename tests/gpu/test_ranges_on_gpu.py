"""Labels, ids and indices that lie on this machine's GPU: checked there, refused with the words of the host.

Skipped where there is no GPU, or where CUDA cannot be compiled; torch for the test of its tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_gpu.launcher import Gpu, why_not

import dslc
from dslc.base.errors import InputError
from dslc.runtime.artifact.dtypes import name_of
from dslc.runtime.cuda import device as devices
from dslc.runtime.cuda.arrays.arrays import DeviceArray, new_array
from dslc.runtime.session.session import Session

MISSING = why_not() or next((f"no {n}" for n in ("numba_cuda", "lark") if find_spec(n) is None), None)
pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(300)]

ROWS, LENGTH, WORDS, CLASSES = 8, 5, 50, 10
MODEL = f"""nn 1
dim B in 1..64 = {ROWS}
dim T in 1..16 = {LENGTH}
model Words(ids: u8[B, T], place: i64[B]) -> [B, {CLASSES}] {{
  h = ids |> embedding({WORDS}, 16) |> mean(over=[1])
  return h[place] |> linear({CLASSES})
}}
train Words(label: i32[B]) {{
  loss = cross_entropy(output, label)
  optimizer = adamw(lr=0.01)
}}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from dslc.compiler import pipeline
    from dslc.compiler.check.model import check_file
    from dslc.compiler.options import Options

    folder = tmp_path_factory.mktemp("words")
    (folder / "words.nn").write_text(MODEL)
    options = Options(target=Gpu().architecture, provider="own", steps_per_launch=4)
    path = folder / "words.dslc"
    path.write_bytes(pipeline.build(check_file(folder / "words.nn"), options).artifact)
    return path


@pytest.fixture
def pair(built: Path) -> Iterator[tuple[Session, Session]]:
    """Two sessions; one gets arrays on the GPU, the other one those of the host."""
    given = {"device": "gpu", "weights": "init", "seed": 3}
    with dslc.load(built, **given) as gpu, dslc.load(built, **given) as host:
        yield gpu, host


def batch(step: int, *lead: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    return {"ids": rng.integers(0, WORDS, (*lead, ROWS, LENGTH), np.uint8),
            "place": rng.integers(0, ROWS, (*lead, ROWS)),
            "label": rng.integers(0, CLASSES, (*lead, ROWS)).astype(np.int32)}  # fmt: skip


def on_gpu(values: np.ndarray) -> DeviceArray:
    dtype = name_of(values.dtype)
    assert dtype is not None
    with devices.device(0) as device:
        array = new_array(device, dtype, values.shape)
        device.driver.copy_in(array.address, values.ctypes.data, values.nbytes, device.inbox)
        device.driver.synchronise(device.inbox)
    return array


def there(given: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: on_gpu(values) for name, values in given.items()}


def said(call: Callable[..., object], given: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        call(**given)
    return f"{caught.value} {caught.value.place} {caught.value.help}"


def equal(gpu: Session, host: Session) -> bool:
    mine, others = gpu.state_tensors(), host.state_tensors()
    return gpu.step == host.step and all(mine[n].tobytes() == others[n].tobytes() for n in others)


def test_steps_of_arrays_there_are_those_of_the_hosts(pair: tuple[Session, Session]) -> None:
    gpu, host = pair
    late = [gpu.train_step(**there(batch(step))) for step in range(20)]
    assert late == [host.train_step(**batch(step)) for step in range(20)] and equal(gpu, host)
    assert gpu.train_steps(**there(batch(30, 10))) == host.train_steps(**batch(30, 10)) and equal(gpu, host)
    assert gpu.evaluate(**there(batch(40))) == host.evaluate(**batch(40))


@pytest.mark.parametrize(("name", "at", "value"), [
    ("ids", (0, 0), WORDS), ("ids", (3, 2), 255), ("ids", (ROWS - 1, LENGTH - 1), WORDS),
    ("place", (0,), -1), ("place", (4,), ROWS), ("place", (ROWS - 1,), -(1 << 63)), ("place", (1,), 1 << 32),
    ("label", (0,), CLASSES), ("label", (5,), -1), ("label", (ROWS - 1,), (1 << 31) - 1),
])  # fmt: skip
def test_a_refused_call_changes_nothing(
    pair: tuple[Session, Session], name: str, at: tuple[int, ...], value: int
) -> None:
    gpu, host = pair
    late = gpu.train_step(**there(batch(0)))
    wrong = batch(1)
    wrong[name][at] = value
    expected = said(host.train_step, wrong)
    assert f"`{name}` holds {value} in row {at[0]}" in expected
    for _ in range(3):
        assert said(gpu.train_step, there(wrong)) == expected
    assert late == host.train_step(**batch(0)) and equal(gpu, host)
    assert said(gpu.evaluate, there(wrong)) == said(host.evaluate, wrong)
    if name != "label":
        wrong.pop("label")
        assert said(gpu.predict, there(wrong)) == said(host.predict, wrong)
    assert gpu.train_step(**there(batch(2))) == host.train_step(**batch(2)) and equal(gpu, host)


@pytest.mark.parametrize("bad", [0, 3, 4, 9])
def test_steps_before_a_wrong_one_are_taken(pair: tuple[Session, Session], bad: int) -> None:
    gpu, host = pair
    given = batch(7, 10)
    given["label"][bad, 2] = CLASSES
    assert said(gpu.train_steps, there(given)) == said(host.train_steps, given)
    assert gpu.step == bad and equal(gpu, host)


def test_a_prediction_stays_there(pair: tuple[Session, Session]) -> None:
    gpu, host = pair
    given = batch(3)
    given.pop("label")
    bytes_out = gpu.counters["bytes_out"]
    found = gpu.predict(**there(given))
    assert isinstance(found, DeviceArray) and gpu.counters["bytes_out"] == bytes_out
    assert found.numpy().tobytes() == host.predict(**given).tobytes()


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
@pytest.mark.parametrize("count", [1, 3, 255, 1024, 1025, 100_003, 5_000_011])
def test_one_value_outside_is_found_wherever_it_is(built: Path, dtype: Any, count: int) -> None:
    values = np.random.default_rng(count).integers(3, 90, count, dtype)
    values[0], values[-1] = 3, 89
    with dslc.load(built, device="gpu", weights="init") as session:
        look: Any = session._backend.may_be_outside
        whole = on_gpu(values)
        part = whole[1:]  # its address is a multiple of the item's size alone
        assert not look([(whole, (3, 90))]) and not look([(part, (3, 90)), (whole, (3, 90))])
        for at in (0, count // 2, count - 1):
            for value in (2, 90):
                wrong = values.copy()
                wrong[at] = value
                array = on_gpu(wrong)
                assert look([(array, (3, 90))]) and look([(whole, (3, 90)), (array, (3, 90))])
                assert look([(array[1:], (3, 90))]) == (at > 0 and count > 1)
        assert look([(on_gpu(np.full(count, 100, dtype)), (3, 90))])  # all threads find one
        assert not look([(whole, (3, 90))])


def test_tensors_of_torch(pair: tuple[Session, Session]) -> None:
    torch = pytest.importorskip("torch")
    gpu, host = pair
    for step in range(10):
        here = batch(step)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):  # late on a stream of torch's
            slow = torch.randn(4096, 4096, device="cuda")
            for _ in range(20):
                slow = slow @ slow * 1e-3
            zero = (0 * slow.sum().nan_to_num(0, 0, 0)).to(torch.uint8)
            given = {n: torch.from_numpy(v).cuda(non_blocking=True) for n, v in here.items()}
            given = {n: t + zero.to(t.dtype) for n, t in given.items()}
            if step % 2:
                wrong = {**given, "label": given["label"] + zero.to(torch.int32) + CLASSES}
                assert "`label` holds" in said(gpu.train_step, wrong)
            late = gpu.train_step(**given)
            for tensor in given.values():
                tensor.fill_(77)  # its owner goes on
        assert late == host.train_step(**here)
    assert equal(gpu, host)
    ids = torch.zeros(ROWS, 2 * LENGTH, dtype=torch.uint8, device="cuda")[:, ::2]
    assert "`ids` is not contiguous" in said(gpu.predict, {"ids": ids, "place": torch.zeros(ROWS).long().cuda()})
    ids = torch.zeros(ROWS, LENGTH, dtype=torch.int64, device="cuda")
    assert "has the dtype i64, expected u8" in said(gpu.predict, {"ids": ids, "place": torch.zeros(ROWS).long().cuda()})
