"""The bytes that a kernel touches, as the header says them, against the buffers that a plan gives it."""

from __future__ import annotations

import copy
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
from artifacts import small_artifact
from artifacts.assembling import canonical_text, put_together, take_apart
from artifacts.mutation import mutate
from artifacts.small_artifact import WHERE
from places import EXAMPLES
from thinning import taken

from dslc.base.errors import ArtifactError
from dslc.cli.build_options import options_of
from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.check.model import check_file
from dslc.compiler.options import entry_sizes
from dslc.compiler.pipeline import compile_entry
from dslc.runtime.artifact.dtypes import ITEMSIZE
from dslc.runtime.artifact.file import Artifact, Blob, write_artifact
from dslc.runtime.artifact.header import check_header
from dslc.runtime.artifact.instructions import Instruction, Kernel
from dslc.runtime.artifact.plan import Buffer, Plan, Scalar
from dslc.runtime.artifact.plan_check import BlobInfo, check
from dslc.runtime.extents import extents_of, launch_key, rows_of

MODELS = ("digits/lenet.nn", "mlp/mlp.nn", "vae/vae.nn", "charlm/charlm.nn")
TARGETS: dict[str, dict[str, Any]] = {
    "cpu": {"target": "cpu"},
    "gpu": {"target": "sm_90", "providers": "own"},
    "gpu, bf16": {"target": "sm_90", "providers": "own", "precision": "bf16"},
}
LARGE = 1 << 40  # of regions: here they do not bound anything
BLOB = "code"
VALUES = {"i32": "v", "i64": "v", "f32": "v", "f64": "v"}
LETTER = {"in": "r", "out": "w", "inout": "b", "scalar": "s"}


@lru_cache(1)
def plans(model: str, target: str) -> tuple[Plan, ...]:
    """All plans of an example; its kernels are not compiled."""
    checked, options = check_file(EXAMPLES / model), options_of(TARGETS[target])
    return tuple(plan_of(compile_entry(checked, e, s, options)[0]) for e, s in entry_sizes(checked, options))


def extents(made: tuple[Plan, ...]) -> Any:
    return extents_of({"kernels": rows_of(made)})


def cause(plan: Plan, known: Any) -> str | None:
    """Why the plan is refused, with its place."""
    kernels = {i.blob: BlobInfo("cubin", 1) for i in plan.instructions if isinstance(i, Kernel)}
    try:
        check(plan, LARGE, LARGE, LARGE, LARGE, prepared_bytes=LARGE, blobs=kernels, extents=known)
    except ArtifactError as error:
        assert error.code == "R301" and error.help
        return f"{error.place}: {error.message}"
    return None


def launches(made: tuple[Plan, ...]) -> Iterator[tuple[Plan, Kernel]]:
    for plan in made:
        alone = replace(plan, inputs=(), outputs=(), work=())
        for kernel in plan.instructions:
            if isinstance(kernel, Kernel):
                yield replace(alone, instructions=(kernel,)), kernel


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("model", MODELS)
def test_a_buffer_that_lacks_one_element_is_refused(model: str, target: str) -> None:
    """Each buffer of each launch; the message names the kernel, the argument, the bytes it needs and those it has."""
    made = plans(model, target)
    known = extents(made)
    assert all(cause(plan, known) is None for plan in made)
    done, spared = 0, 0
    for plan, kernel in launches(made):
        for number, (kind, index) in enumerate(kernel.args):
            if kind not in ("in", "out", "inout"):
                continue
            whole = plan.buffers[int(index)]
            size, each = whole.bytes, ITEMSIZE[whole.dtype]
            pointers = [i for i, (k, _) in enumerate(kernel.args) if k in LETTER]
            needed = known[launch_key(kernel)][pointers.index(number)]
            assert needed <= size
            if not needed:
                continue
            short = replace(whole, shape=(needed // each - 1,))
            args = (*kernel.args[:number], (kind, len(plan.buffers)), *kernel.args[number + 1 :])
            said = cause(
                replace(plan, buffers=(*plan.buffers, short), instructions=(replace(kernel, args=args),)), known
            )
            assert said is not None and f"args[{number}]" in said and kernel.symbol in said
            assert f"{needed} bytes" in said and f"has {short.bytes}" in said and plan.names[kernel.where] in said
            done, spared = done + 1, spared + (needed < size)
    assert done > 20 and spared * 100 <= done, "nearly all launches need all of their buffers"


@pytest.mark.parametrize("target", taken(TARGETS, 2))
def test_a_launch_is_one_of_the_header(target: str) -> None:
    """Another grid, block, value, kind or number of arguments is not what the bytes were said of."""
    made = plans("charlm/charlm.nn", target)
    known, seen = extents(made), Counter[str]()
    for plan, kernel in launches(made):
        others: dict[str, Kernel] = {
            "grid": replace(kernel, grid=(kernel.grid[0] + 1, *kernel.grid[1:])),
            "symbol": replace(kernel, symbol="k_other"),
            "shared": replace(kernel, shared_bytes=kernel.shared_bytes + 4),
            "block": replace(kernel, block=(kernel.block[0] // 2 or 2, 1, 1)),
            "fewer": replace(kernel, args=kernel.args[1:]),
            "more": replace(kernel, args=(*kernel.args, kernel.args[0])),
            "kind": replace(kernel, args=(("inout", kernel.args[0][1]), *kernel.args[1:])),
        }
        for number, (kind, value) in enumerate(kernel.args):
            if kind[0] in "if" and kind[1:].isdigit():
                other = (kind, value + 1)
                others[f"value {number}"] = replace(
                    kernel, args=(*kernel.args[:number], other, *kernel.args[number + 1 :])
                )
        for what, other in others.items():
            found = replace(plan, instructions=(other,))
            if launch_key(other) in known and what.startswith("value"):
                continue  # the launch of another size
            assert cause(found, known) is not None, (what, kernel)
            assert what == "kind" or cause(found, None) is None, "only what the header says tells them apart"
            seen[what.partition(" ")[0]] += 1
    assert all(seen[w] > 5 for w in ("grid", "symbol", "shared", "block", "fewer", "more", "kind"))
    assert seen["value"] > 5 or target == "cpu"


def hand_made(*instructions: Instruction, **more: Any) -> Plan:
    buffers = (Buffer("work", 0, "f32", (6,)), Buffer("work", 64, "f64", (4,)), Buffer("work", 128, "u8", (9,)))
    given: dict[str, Any] = {"inputs": (), "outputs": (), "constants": (), "buffers": buffers, **more}
    return Plan(scalars=(Scalar("lr", 0, "f32"),), instructions=instructions, names=WHERE, **given)


def launch(*args: tuple[str, int | float], symbol: str = "k_1") -> Kernel:
    return Kernel(BLOB, symbol, (2, 1, 1), (32, 1, 1), 0, args, 0, 0)


def test_the_least_of_equal_launches_counts() -> None:
    """Code, grid and values settle what is touched: launches that are equal in these touch the same bytes."""
    first, second = launch(("in", 0), ("out", 1), ("i32", 5)), launch(("in", 1), ("out", 2), ("i32", 5))
    other = launch(("in", 1), ("out", 2), ("i32", 6))
    rows = rows_of([hand_made(first, other), hand_made(second)])
    assert rows == [
        ["k_1", [2, 1, 1], [32, 1, 1], 0, "rwv", [["i32", 5]], [24, 9]],
        ["k_1", [2, 1, 1], [32, 1, 1], 0, "rwv", [["i32", 6]], [32, 9]],
    ]
    assert rows_of([hand_made(second), hand_made(other, first)]) == rows


def test_a_scalar_is_as_long_as_the_kernel_takes_it() -> None:
    plan = hand_made(launch(("in", 0), ("scalar", 0)))
    known = extents((plan,))
    assert cause(plan, known) is None
    wide = {key: [24, 8] for key in known}
    said = cause(plan, wide)
    assert said is not None and "args[1]" in said and "8 bytes" in said and "has 4" in said


@pytest.mark.parametrize("minor", [0, 1, 7])
def test_what_the_header_must_say(minor: int) -> None:
    """Format 1.0 does not describe kernels and loads as before; since 1.1 a launch that is not listed is refused."""
    header = copy.deepcopy(dict(Artifact.of_bytes(with_kernel()).header))
    header["format"] = [1, minor]
    check_header(header)
    rows = header.pop("kernels")
    if minor:
        with pytest.raises(ArtifactError, match="missing"):
            check_header(header)
    else:
        check_header(header)
    with pytest.raises(ArtifactError, match="occurs twice"):
        check_header({**header, "kernels": [*rows, *rows]})


def with_kernel() -> bytes:
    """The small artifact, whose product is a kernel's; its code is not looked at before it is launched."""
    header, blobs = small_artifact.header(), small_artifact.blobs()
    found = []
    for number, rows in ((1, 1), (2, 4)):
        plan = small_artifact.predict_plan(rows)
        kernel = launch(("in", 1), ("in", 0), ("out", 3), ("i64", rows), symbol="k_product")
        made = replace(plan, instructions=(kernel, *plan.instructions[1:]))
        blobs[number] = Blob(f"plan.{number}", "plan", made.encode())
        found.append(made)
    blobs.append(Blob(BLOB, "cubin", b"code"))
    return write_artifact({**header, "kernels": rows_of(found), "required_features": ["cuda", "reference"]}, blobs)


def as_old(data: bytes, **lies: Any) -> bytes:
    """The same artifact as format 1.0 had it."""
    header, blobs = take_apart(data)
    del header["kernels"]
    return put_together(canonical_text({**header, "format": [1, 0], **lies}), list(blobs.values()))


def test_an_artifact_of_format_1_0_loads() -> None:
    for data in (with_kernel(), small_artifact.artifact_bytes()):
        old, new = Artifact.of_bytes(as_old(data)), Artifact.of_bytes(data)
        old.verify()
        for before, now in zip(old.all_programs(), new.all_programs(), strict=True):
            assert old.plan(before) == new.plan(now)
    with pytest.raises(ArtifactError, match="missing"):
        Artifact.of_bytes(as_old(with_kernel(), format=[1, 1]))


def lies(count: int, seed: int) -> Counter[str]:
    """Mutants of the header's rows and of the plans' launches. An oracle, which shares no code with the rules, says of
    each that is accepted: every launch has a row, and every buffer its bytes."""
    rng, good, seen = random.Random(seed), with_kernel(), Counter[str]()
    header, blobs = take_apart(good)
    for case in range(count):
        lie = copy.deepcopy(header)
        for _ in range(rng.choice((1, 1, 2, 3))):
            near(lie["kernels"], rng) if rng.random() < 0.7 else mutate({"kernels": lie["kernels"]}, rng)
        start = time.process_time()
        try:
            artifact = Artifact.of_bytes(put_together(canonical_text(lie), list(blobs.values())))
            artifact.verify()
        except ArtifactError as error:
            assert error.code in ("R301", "R302") and error.place and error.render(), (seed, case)
            seen["bytes" if re.search(r"touches \d+ bytes", error.message) else "refused"] += 1
        else:
            rows_hold(artifact)
            seen["accepted"] += 1
        assert time.process_time() - start < 2.0, (seed, case)
    return seen


def near(rows: Any, rng: random.Random) -> None:
    """Changes a number of a row, or the kind of an argument, so that the row still looks like one."""
    found = [row for row in rows if isinstance(row, list) and len(row) == 7] if isinstance(rows, list) else []
    if not found:
        return
    row = rng.choice(found)
    what = rng.choice(("bytes", "bytes", "bytes", "letter", "grid", "value", "leave out"))
    if what == "leave out":
        rows.remove(row)
    elif what == "letter" and isinstance(row[4], str) and row[4]:
        at = rng.randrange(len(row[4]))
        row[4] = row[4][:at] + rng.choice("rwbsv") + row[4][at + 1 :]
    elif what in ("grid", "value", "bytes"):
        numbers = row[{"grid": 1, "value": 5, "bytes": 6}[what]]
        if isinstance(numbers, list) and numbers:
            at = rng.randrange(len(numbers))
            if what == "value" and isinstance(numbers[at], list):
                numbers, at = numbers[at], -1
            if numbers and type(numbers[at]) is int:
                numbers[at] += rng.choice((-32, -8, -1, 0, 1, 8, 2**62))


def rows_hold(artifact: Artifact) -> None:
    for program in artifact.all_programs():
        plan = artifact.plan(program)
        for kernel in (i for i in plan.instructions if isinstance(i, Kernel)):
            letters = "".join((LETTER | VALUES)[kind] for kind, _ in kernel.args)
            values = [list(arg) for arg in kernel.args if arg[0] in VALUES]
            head = [kernel.symbol, list(kernel.grid), list(kernel.block), kernel.shared_bytes, letters, values]
            [row] = [row for row in artifact.header["kernels"] if row[:6] == head]
            pointers = [value for kind, value in kernel.args if kind in LETTER]
            for index, size in zip(pointers, row[6], strict=True):
                assert 0 <= size <= plan.buffers[int(index)].bytes


def test_lies_about_what_kernels_touch(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    seen = lies(fuzz_count(4_000), fuzz_seed)
    print(dict(seen))
    assert min(seen.values()) * 50 > seen.total()


def test_the_lies_can_find_a_missing_check(monkeypatch: pytest.MonkeyPatch) -> None:
    from dslc.runtime.artifact import plan_check

    monkeypatch.setattr(plan_check, "extent_fault", lambda *_: None)
    with pytest.raises((AssertionError, ValueError)):
        lies(1_000, 5)
