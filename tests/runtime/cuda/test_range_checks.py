"""Values outside their ranges in arrays on the GPU: found there, and refused with the words of the host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifacts import line_model
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.foreign_arrays import KINDS, ByDlpack, Tensor
from fake_gpu.gpu_model import Kernels, moved_to_gpu, write_gpu_line

from dslc.base.errors import ArtifactError, DslcError, InputError
from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ops import registry
from dslc.compiler.options import Options
from dslc.runtime.artifact.file import Artifact
from dslc.runtime.cuda.arrays.arrays import DeviceArray
from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session

ROWS, FEATURES = line_model.BATCH, line_model.FEATURES
Machine = Callable[..., FakeDriver]
#: Ids of two dtypes; a range that the sizes of the call say; an input with a range that is optional in no call.
TOKENS = """nn 1
dim B in 1..64 = 4
dim T in 1..16 = 3
model Words(ids: u8[B, T], place: i64[B]) -> [B, 5] {
  h = ids |> embedding(7, 6) |> mean(over=[1])
  return h[place] |> linear(5)
}
train Words(label: i32[B]) {
  loss = cross_entropy(output, label)
  optimizer = sgd(lr=0.5)
}
"""
#: Rows apart from one another; a batch of several parts.
PARTS = """nn 1
dim B in 1..64 = 4
model Rows(ids: i32[B, 3]) -> [B, 5] {
  return ids |> embedding(7, 6) |> mean(over=[1]) |> linear(5)
}
train Rows(label: i32[B]) {
  loss = cross_entropy(output, label)
  optimizer = sgd(lr=0.5)
  MORE
}
"""


def line(folder: Path, machine: Machine, **options: Any) -> tuple[FakeDriver, Session, Session]:
    made = {"checks": options.pop("checks", True)}
    path, kernels = write_gpu_line(folder, targets=("cpu", "sm_90"), **made)
    fake = machine(**kernels.driver())
    given = {"weights": "init", "meanings": line_model.MEANINGS}
    return fake, load(path, device="gpu", **given, **options), load(path, device="cpu", **given)


def compiled(folder: Path, machine: Machine, text: str) -> tuple[FakeDriver, Session, Session]:
    (folder / "net.nn").write_text(text)
    built = pipeline.build(check_file(folder / "net.nn"), Options(provider="reference"))
    kernels = Kernels(registry.meanings())
    (folder / "net.dslc").write_bytes(moved_to_gpu(Artifact.of_bytes(built.artifact), kernels))
    fake = machine(**kernels.driver())
    given = {"weights": "init", "meanings": registry.meanings}
    return fake, load(folder / "net.dslc", device="gpu", **given), load(folder / "net.dslc", device="cpu", **given)


@pytest.fixture
def words(tmp_path: Path, machine: Machine) -> Iterator[tuple[FakeDriver, Session, Session]]:
    fake, gpu, cpu = compiled(tmp_path, machine, TOKENS)
    with gpu:
        yield fake, gpu, cpu


def batch(step: int, *lead: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    return {"x": rng.standard_normal((*lead, ROWS, FEATURES)).astype(np.float32),
            "target": rng.integers(0, 10, (*lead, ROWS)).astype(np.int32)}  # fmt: skip


def there(kind: type[Tensor], given: dict[str, np.ndarray]) -> dict[str, Tensor]:
    names = {np.dtype(np.int32): "i32", np.dtype(np.uint8): "u8", np.dtype(np.int64): "i64"}
    return {name: kind(value.copy(), names.get(value.dtype, "f32")) for name, value in given.items()}


def said(call: Callable[..., object], given: dict[str, Any]) -> str:
    """The error of a call with these inputs."""
    with pytest.raises(InputError) as caught:
        call(**given)
    return f"{caught.value} {caught.value.place} {caught.value.help}"


def same_state(gpu: Session, cpu: Session) -> bool:
    mine, others = gpu.state_tensors(), cpu.state_tensors()
    return gpu.step == cpu.step and all(mine[n].tobytes() == others[n].tobytes() for n in others)


@pytest.mark.parametrize("kind", KINDS)
def test_values_inside_never_reach_the_host(kind: type[Tensor], tmp_path: Path, machine: Machine) -> None:
    fake, gpu, cpu = line(tmp_path, machine)
    steps = [there(kind, batch(step)) for step in range(4)]
    copies = fake.calls["cuMemcpyDtoHAsync"]
    late = [gpu.train_step(**steps[0])]
    each = fake.calls["cuMemcpyDtoHAsync"] - copies  # the results
    late += [gpu.train_step(**given) for given in steps[1:]]
    assert fake.calls["cuMemcpyDtoHAsync"] - copies == 4 * each
    assert late == [cpu.train_step(**batch(step)) for step in range(4)] and same_state(gpu, cpu)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("at", "value"), [(0, 10), (1, -1), (ROWS - 1, 10), (2, -(1 << 31)), (3, (1 << 31) - 1)])
def test_a_refused_step_changes_nothing(
    kind: type[Tensor], at: int, value: int, tmp_path: Path, machine: Machine
) -> None:
    _, gpu, cpu = line(tmp_path, machine)
    late = gpu.train_step(**there(kind, batch(0)))  # under way
    wrong = batch(1)
    wrong["target"][at] = value
    for _ in range(2):
        expected = said(cpu.train_step, wrong)
        assert f"`target` holds {value} in row {at}" in expected
        assert said(gpu.train_step, there(kind, wrong)) == expected
    assert late == cpu.train_step(**batch(0)) and same_state(gpu, cpu)
    assert said(gpu.evaluate, there(kind, wrong)) == said(cpu.evaluate, wrong)
    assert gpu.train_step(**there(kind, batch(2))) == cpu.train_step(**batch(2)) and same_state(gpu, cpu)


def test_the_first_wrong_input_is_named_as_on_the_host(words: Any) -> None:
    _, gpu, cpu = words
    rng = np.random.default_rng(0)
    good = {"ids": rng.integers(0, 7, (4, 3), np.uint8), "place": np.array([0, 3, 2, 1]),
            "label": rng.integers(0, 5, 4).astype(np.int32)}  # fmt: skip
    for kind in KINDS:
        for wrong in ({"ids": (2, 1, 7)}, {"place": (3, 4)}, {"place": (0, -1), "label": (1, 5)}, {"label": (0, -1)}):
            given = {name: value.copy() for name, value in good.items()}
            for name, (*at, value) in wrong.items():
                given[name][tuple(at)] = value
            expected = said(cpu.train_step, given)
            on_gpu = there(kind, given)
            assert said(gpu.train_step, on_gpu) == expected
            mixed = {**given, **{n: on_gpu[n] for n in [*wrong][-1:]}}
            assert said(gpu.train_step, mixed) == expected
        assert gpu.train_step(**there(kind, good)) == cpu.train_step(**good) and same_state(gpu, cpu)


@pytest.mark.parametrize("kind", KINDS)
def test_a_prediction_from_ids_on_the_gpu_stays_there(words: Any, kind: type[Tensor]) -> None:
    fake, gpu, cpu = words
    rng = np.random.default_rng(1)
    given = {"ids": rng.integers(0, 7, (4, 3), np.uint8), "place": rng.integers(0, 4, 4)}
    on_gpu = there(kind, given)
    copies = fake.calls["cuMemcpyDtoHAsync"]
    found = gpu.predict(**on_gpu)
    assert fake.calls["cuMemcpyDtoHAsync"] == copies and isinstance(found, DeviceArray)
    assert found.numpy().tobytes() == cpu.predict(**given).tobytes()
    given["ids"][3, 2] = 200
    assert said(gpu.predict, there(kind, given)) == said(cpu.predict, given)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("more", "parts"), [("accumulate = 3", 3), ("}\nmesh { shards = 2", 2)])
def test_all_parts_of_a_batch_are_checked_before_the_first(
    kind: type[Tensor], more: str, parts: int, tmp_path: Path, machine: Machine
) -> None:
    _, gpu, cpu = compiled(tmp_path, machine, PARTS.replace("MORE", more))
    rows = 4 * parts if parts == 3 else 4  # shards divide the built rows
    rng = np.random.default_rng(2)
    good = {"ids": rng.integers(0, 7, (rows, 3)).astype(np.int32), "label": rng.integers(0, 5, rows).astype(np.int32)}
    wrong = {**good, "ids": good["ids"].copy()}
    wrong["ids"][rows - 1, 2] = 7
    for _ in range(2):
        assert gpu.train_step(**there(kind, good)) == cpu.train_step(**good) and same_state(gpu, cpu)
        assert said(gpu.train_step, there(kind, wrong)) == said(cpu.train_step, wrong)
        assert same_state(gpu, cpu)
    for count in (1, 3, 5):  # rows that are missing in a program are filled up
        few = {name: value[:count] for name, value in good.items()}
        assert gpu.evaluate(**there(kind, few)) == cpu.evaluate(**few)
        found = gpu.predict(**there(kind, {"ids": few["ids"]}))
        assert found.numpy().tobytes() == cpu.predict(ids=few["ids"]).tobytes()
    gpu.close()


def test_a_u8_input_is_not_an_i32_one(words: Any) -> None:
    _, gpu, _ = words
    ids = ByDlpack(np.zeros((4, 3), np.int32), "i32")
    assert "has the dtype i32, expected u8" in said(gpu.predict, {"ids": ids, "place": np.zeros(4, np.int64)})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [None, 0, 4, 6])
def test_steps_before_a_wrong_one_are_taken(
    kind: type[Tensor], bad: int | None, tmp_path: Path, machine: Machine
) -> None:
    fake, gpu, cpu = line(tmp_path, machine, steps_per_launch=3)
    given = batch(5, 7)
    if bad is not None:
        given["target"][bad, 1] = 10
        assert said(gpu.train_steps, there(kind, given)) == said(cpu.train_steps, given)
        assert gpu.step == bad and same_state(gpu, cpu)
        return
    on_gpu, calls = there(kind, given), fake.calls.copy()
    late = gpu.train_steps(**on_gpu)
    made = fake.calls - calls
    # one check for each launch of three, and one for the step that is left
    assert made["cuLaunchKernel"] == 0 and made["cuGraphLaunch"] == 2 + 1 + 3
    assert late == cpu.train_steps(**given) and same_state(gpu, cpu)


@pytest.mark.parametrize("name", ["x", "target"])
def test_steps_of_arrays_of_which_one_is_there(name: str, tmp_path: Path, machine: Machine) -> None:
    _, gpu, cpu = line(tmp_path, machine, steps_per_launch=3)
    given = batch(5, 7)
    assert gpu.train_steps(**{**given, **there(ByDlpack, {name: given[name]})}) == cpu.train_steps(**given)
    given["target"][4, 0] = -1
    mixed = {**given, **there(ByDlpack, {name: given[name]})}
    assert said(gpu.train_steps, mixed) == said(cpu.train_steps, given)
    assert gpu.step == 7 + 4 and same_state(gpu, cpu)


def test_an_artifact_without_these_kernels_is_checked_on_the_host(tmp_path: Path, machine: Machine) -> None:
    fake, gpu, cpu = line(tmp_path, machine, checks=False, steps_per_launch=2)
    launches = fake.calls["cuLaunchKernel"]
    assert gpu.train_step(**there(ByDlpack, batch(0))) == cpu.train_step(**batch(0))
    assert gpu.train_steps(**there(ByDlpack, batch(1, 4))) == cpu.train_steps(**batch(1, 4)) and same_state(gpu, cpu)
    wrong = batch(2)
    wrong["target"][2] = -3
    assert said(gpu.train_step, there(ByDlpack, wrong)) == said(cpu.train_step, wrong)
    assert fake.calls["cuLaunchKernel"] == launches


def test_the_host_does_not_wait_for_the_step_before(tmp_path: Path, machine: Machine) -> None:
    """A check ends while a step is under way that was begun before it."""
    fake, gpu, _ = line(tmp_path, machine)
    [lane] = gpu._backend._lanes  # type: ignore[attr-defined]
    steps = [there(ByDlpack, batch(step)) for step in range(2)]
    first = gpu.train_step(**steps[0])
    gpu._calls.train_step.check(gpu._backend.adopt("train_step", steps[1]))
    assert lane.busy and fake._get(lane.stream, object).queue
    assert np.isfinite(first.loss)


def test_a_call_that_the_driver_refuses(tmp_path: Path, machine: Machine) -> None:
    """Whatever fails, the next check tells the truth."""
    fake, gpu, cpu = line(tmp_path, machine)
    gpu.train_step(**there(ByDlpack, batch(0)))
    cpu.train_step(**batch(0))
    wrong = there(ByDlpack, {**batch(1), "target": np.full(ROWS, 11, np.int32)})
    right = there(ByDlpack, batch(1))
    backend = gpu._backend
    arrays = [backend.adopt("predict", {"target": given["target"]})["target"] for given in (wrong, right)]
    calls = len(fake.log)
    assert backend.may_be_outside([(arrays[0], (0, 10))])  # type: ignore[list-item]
    for number in range(1, len(fake.log) - calls + 1):
        fake.fail_at = len(fake.log) + number
        for _ in range(1):
            try:
                assert backend.may_be_outside([(arrays[0], (0, 10))])  # type: ignore[list-item]
            except DslcError as error:
                assert error.place is not None
        fake.fail_at = None
        assert not backend.may_be_outside([(arrays[1], (0, 10))])  # type: ignore[list-item]
    assert gpu.train_step(**right) == cpu.train_step(**batch(1)) and same_state(gpu, cpu)


def test_many_threads_check_at_once(tmp_path: Path, machine: Machine) -> None:
    _, gpu, _ = line(tmp_path, machine, contexts=2)
    arrays = there(ByDlpack, {"good": batch(0)["target"], "bad": np.full(ROWS, 10, np.int32)})
    adopted = gpu._backend.adopt("predict", arrays)
    found: dict[int, list[bool]] = {}

    def look(number: int) -> None:
        array: Any = adopted["bad" if number % 2 else "good"]
        found[number] = [gpu._backend.may_be_outside([(array, (0, 10))]) for _ in range(20)]

    threads = [threading.Thread(target=look, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [bool(number % 2)] * 20 for number in range(6)}
    array: Any = adopted["good"]
    gpu.close()
    with pytest.raises(ArtifactError, match="closed"):
        gpu._backend.may_be_outside([(array, (0, 10))])


def test_no_value_of_an_empty_range_is_inside(tmp_path: Path, machine: Machine) -> None:
    _, gpu, _ = line(tmp_path, machine)
    given = {"i32": batch(0)["target"], "none": np.zeros(0, np.int32)}
    some, none = gpu._backend.adopt("predict", there(ByDlpack, given)).values()
    look: Any = gpu._backend.may_be_outside
    assert look([(some, (-(1 << 63), -(1 << 63)))])
    assert look([(some, (4, 4))]) and look([(some, (0, -1))]) and not look([(none, (4, 4))]) and not look([])
    assert not look([(some, (-(1 << 63), 1 << 63))])


def test_a_check_launches_no_kernel_outside_of_graphs(tmp_path: Path, machine: Machine) -> None:
    """Such a launch makes the graph that follows it slower."""
    fake, gpu, _ = line(tmp_path, machine)
    given = there(KINDS[0], batch(0))
    gpu.train_step(**given).loss  # noqa: B018
    before = fake.calls.copy()
    for _ in range(3):
        gpu.train_step(**given).loss  # noqa: B018
    more = {name: fake.calls[name] - before[name] for name in fake.calls}
    assert more["cuGraphLaunch"] == 6 and more.get("cuLaunchKernel", 0) == 0
    assert more["cuGraphExecKernelNodeSetParams"] == 0  # the same array again
