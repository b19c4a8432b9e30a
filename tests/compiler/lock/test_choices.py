"""What a build may obey: the GPU, the order of lock and tables, and the digest of what it used."""

from __future__ import annotations

from dataclasses import replace

import pytest
from locks import GPU, block, way

from dslc.base.errors import BuildError, EnvironmentFault
from dslc.compiler.ir.choice import Choice
from dslc.compiler.lock.choices import Origins, Tuned, digest_of, require, tuned
from dslc.compiler.lock.model import Block, Lock
from dslc.compiler.lock.text import format_lock, parse_lock

H100 = "NVIDIA H100 PCIe, 114 SMs, sm_90"
A100 = "NVIDIA A100, 108 SMs, sm_80"
NONE = Lock()


def on(*gpus: str, seconds: float = 1e-6) -> Lock:
    return Lock.of(block("a", gpu, (way(seconds),)) for gpu in gpus)


def found(lock: Lock | None, table: Lock, target: str = "sm_90", gpu: str | None = None) -> Tuned:
    return tuned(target, lock, table, gpu=gpu, place=None if lock is None else "dslc.lock")


def test_the_only_gpu_of_a_target_is_taken() -> None:
    assert found(on(GPU, A100), NONE).gpu == GPU
    assert found(on(GPU, A100), NONE, "sm_80").gpu == A100
    assert found(on(GPU), NONE, "sm_100") == Tuned("", NONE, NONE, "dslc.lock", (GPU,))
    assert found(None, on(GPU)).gpu == GPU and found(None, NONE).gpu == ""


def test_the_lock_decides_before_the_shipped_table() -> None:
    both = found(on(H100), on(GPU))
    assert both.gpu == H100 and both.table == NONE
    same = found(on(GPU, seconds=2e-6), Lock.of([*on(GPU).blocks, block("b")]))
    assert {key: each.ways[0].seconds for key, each in same.blocks.items()} == {"a": 2e-6, "b": 1e-6}
    assert found(on(H100), on(GPU), gpu="H200").gpu == GPU


def test_several_gpus_need_a_name() -> None:
    with pytest.raises(BuildError, match="2 GPUs were measured for the target sm_90") as caught:
        found(on(GPU, H100, A100), NONE)
    assert caught.value.code == "E0608" and caught.value.place == "dslc.lock"
    assert GPU in caught.value.message and H100 in caught.value.message and A100 not in caught.value.message
    assert "--gpu 'NVIDIA H100 PCIe'" in str(caught.value.help)
    for name in ("h200", "NVIDIA H200", GPU):
        assert found(on(GPU, H100), NONE, gpu=name).gpu == GPU
    longer = GPU.replace("H200,", "H200 NVL,")
    assert found(on(GPU, longer), NONE, gpu=GPU).gpu == GPU
    with pytest.raises(BuildError, match="2 GPUs"):
        found(on(GPU, longer), NONE, gpu="H200")


def test_several_targets_need_several_names() -> None:
    lock = on(GPU, H100, A100)
    assert found(lock, NONE, "sm_90", "A100,H200").gpu == GPU
    assert found(lock, NONE, "sm_80", "A100, h200").gpu == A100
    with pytest.raises(BuildError, match="nothing was measured on a GPU 'H200'; for sm_80"):
        found(lock, NONE, "sm_80", "H200")


def test_a_gpu_that_was_not_measured_is_an_error_that_lists_those_that_were() -> None:
    with pytest.raises(BuildError, match="nothing was measured on a GPU 'B200'") as caught:
        found(on(GPU, H100), NONE, gpu="B200")
    assert caught.value.code == "E0608" and GPU in caught.value.message and H100 in caught.value.message
    assert found(NONE, NONE, gpu="B200").gpu == ""


def test_the_choices_are_the_ways_of_the_blocks() -> None:
    ways = (way(1e-6, "cudnn", "eng3_k1=2", 512), way(2e-6, "own", "rows=4"))
    choices = found(Lock.of([block("a", GPU, ways)]), NONE).choices
    best = choices.best("a", ("own", "cudnn"))
    assert best is not None and best.choice == Choice("cudnn", "eng3_k1=2", 512)
    assert choices.best("a", ("own",)) == ways[1] and choices.best("b", ("own",)) is None


def test_the_digest_covers_every_field_of_the_blocks_and_nothing_else() -> None:
    first = block("a", ways=(way(1e-6), way(2e-6)))
    others: list[Block] = [
        replace(first, key="b"),
        replace(first, gpu=H100),
        replace(first, ways=(way(1e-6), way(3e-6))),
        replace(first, ways=first.ways[::-1]),
        replace(first, default=way(1.0)),
        replace(first, spread=0.5),
        replace(first, error=0.5),
        replace(first, rejected=("x",)),
        replace(first, versions="driver 1"),
    ]
    assert len({digest_of([each]) for each in (first, *others)}) == 1 + len(others)
    again = parse_lock(b"# a note\n" + format_lock(Lock.of([block("b"), first])).encode(), "dslc.lock")
    assert digest_of(again.blocks) == digest_of([first, block("b")])


def test_a_miss_names_the_keys_and_the_command() -> None:
    keys = tuple(f"key {i:02}" for i in range(20))
    with pytest.raises(EnvironmentFault, match="lacks 20 problems of this build on NVIDIA H200") as caught:
        found = {"sm_80": Origins("", 1, 0, 0, ()), "sm_90": Origins(GPU, 1, 0, 20, keys)}
        require(found, {"sm_90": Tuned(GPU, NONE, NONE, "models/dslc.lock")})
    error = caught.value
    assert error.code == "R210" and error.exit_code == 4 and "key 00; key 01" in error.message
    assert "and 12 more" in error.message and "dslc tune" in str(error.help)
    assert error.place == "models/dslc.lock"
    require({"sm_90": Origins(GPU, 20, 0, 0, ())}, {})


def test_a_lock_of_other_gpus_is_named() -> None:
    there = found(on(A100), NONE)
    assert there.others == (A100,) and found(on(A100, GPU), NONE).others == () and found(None, on(GPU)).others == ()
    assert found(on(A100), on(GPU)).others == (A100,)
    with pytest.raises(EnvironmentFault, match=f"no measurements for sm_90, only those of {A100}") as caught:
        require({"sm_90": Origins("", 0, 0, 1, ("a",))}, {"sm_90": there})
    assert caught.value.code == "R210" and caught.value.place == "dslc.lock" and "sm_90" in str(caught.value.help)


def test_origins_are_kept_as_data() -> None:
    each = Origins(GPU, 1, 2, 3, ("a", "b"))
    assert Origins.of_json(each.as_json()) == each
