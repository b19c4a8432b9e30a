"""The plan's rules about ranges, byte by byte: a range that slides over another is refused just when they share a byte.

The rules are asked through ``check``; what is right is a set of bytes.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from artifacts import small_artifact
from artifacts.small_artifact import WHERE

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact.file import Artifact
from dslc.runtime.artifact.header import check_header
from dslc.runtime.artifact.instructions import Collective, Copy, Fill, GraphOp, Instruction, Kernel, Reference
from dslc.runtime.artifact.plan import Buffer, Constant, Plan, Port, Region, Scalar
from dslc.runtime.artifact.plan_check import BlobInfo, check
from dslc.runtime.artifact.reserved import STEP_BLOCK

WORK, IO, STATE, CONTEXT = 256, STEP_BLOCK + 64, 64, 64
BLOBS = {"code": BlobInfo("cubin", 10), "table": BlobInfo("constant", 24), "last": BlobInfo("constant", 8)}
SIZES: dict[Region, int] = {"work": WORK, "io": IO, "state": STATE, "context": CONTEXT}


def plan(*instructions: Instruction, buffers: tuple[Buffer, ...], **more: Any) -> Plan:
    given: dict[str, Any] = {"inputs": (), "outputs": (), "scalars": (), "constants": (), **more}
    return Plan(buffers=buffers, instructions=instructions, names=WHERE, **given)


def refused(made: Plan) -> bool:
    try:
        check(made, STATE, CONTEXT, IO, WORK, blobs=BLOBS)
    except ArtifactError as error:
        assert error.code == "R301"
        return True
    return False


def bytes_of(buffer: Buffer) -> set[tuple[str, int]]:
    return {(buffer.region, at) for at in range(buffer.offset, buffer.end)}


def writing(kind: str) -> Instruction:
    """An instruction that writes buffer 0; buffer 1 has its size, and nothing else lies there."""
    return {
        "fill": Fill(0, b"\0", 0, 0),
        "copy": Copy(1, 0, 0, 0),
        "reference": Reference("relu", {}, (1,), (0,), 0),
        "kernel": Kernel("code", "k", (1, 1, 1), (32, 1, 1), 0, (("in", 1), ("out", 0)), 0, 0),
        "inout": Kernel("code", "k", (1, 1, 1), (32, 1, 1), 0, (("inout", 0),), 0, 0),
        "collective": Collective("broadcast", "none", 1, 0, 0, 0),
    }[kind]


@pytest.mark.parametrize("kind", ["fill", "copy", "reference", "kernel", "inout", "collective"])
def test_constants_are_never_written(kind: str) -> None:
    """Two constants, of 24 and 8 bytes, and a buffer of every place and size up to 40 bytes."""
    constants = (Constant(2, "table", 0), Constant(3, "last", 0))
    held = (Buffer("work", 64, "u8", (24,)), Buffer("work", 104, "u8", (8,)))
    taken = bytes_of(held[0]) | bytes_of(held[1])
    for size in (0, 1, 3, 4, 8, 40):
        for offset in range(20, 120):
            one = Buffer("work", offset, "u8", (size,))
            buffers = (one, Buffer("work", 200, "u8", (size,)), *held)
            made = plan(writing(kind), buffers=buffers, constants=constants)
            assert refused(made) == bool(bytes_of(one) & taken), one


@pytest.mark.parametrize("kind", ["fill", "copy", "reference", "kernel", "inout", "collective"])
def test_the_step_block_is_never_written(kind: str) -> None:
    for size in (0, 1, 4):
        for offset in range(STEP_BLOCK - 6, STEP_BLOCK + 3):
            one = Buffer("io", offset, "u8", (size,))
            made = plan(writing(kind), buffers=(one, Buffer("work", 0, "u8", (size,))))
            assert refused(made) == any(at < STEP_BLOCK for _, at in bytes_of(one)), one


@pytest.mark.parametrize("region", SIZES)
def test_a_buffer_ends_within_its_region_and_lies_at_its_elements(region: Region) -> None:
    for dtype, size in (("u8", 1), ("bf16", 2), ("f32", 4), ("f64", 8)):
        for offset in range(SIZES[region] - 40, SIZES[region] + 12):
            for count in (0, 1, 3):
                one = Buffer(region, offset, dtype, (count,))
                wrong = offset + size * count > SIZES[region] or offset % size != 0
                assert refused(plan(buffers=(one,))) == wrong, one


def test_constants_lie_within_their_blobs_and_apart() -> None:
    for offset in range(26):
        for size in (0, 1, 8, 24):
            made = plan(buffers=(Buffer("work", 0, "u8", (size,)),), constants=(Constant(0, "table", offset),))
            assert refused(made) == (offset + size > 24)
    fixed = Buffer("work", 32, "u8", (8,))
    for offset in range(56):
        for size in (0, 1, 9):
            one = Buffer("work", offset, "u8", (size,))
            made = plan(buffers=(fixed, one), constants=(Constant(0, "last", 0), Constant(1, "table", 0)))
            assert refused(made) == bool(bytes_of(fixed) & bytes_of(one)), one


def test_inputs_lie_apart_and_after_the_step_block() -> None:
    fixed = Buffer("io", STEP_BLOCK + 16, "u8", (8,))
    for offset in range(STEP_BLOCK - 4, STEP_BLOCK + 40):
        for size in (0, 1, 9):
            one = Buffer("io", offset, "u8", (size,))
            made = plan(buffers=(fixed, one), inputs=(Port("a", "data", 0), Port("b", "data", 1)))
            assert refused(made) == (offset < STEP_BLOCK or bool(bytes_of(fixed) & bytes_of(one))), one


@pytest.mark.parametrize("library", [False, True])
def test_outputs_of_one_instruction_lie_apart(library: bool) -> None:
    fixed = Buffer("work", 64, "u8", (8,))
    for offset in range(50, 80):
        for size in (0, 1, 9):
            one = Buffer("work", offset, "u8", (size,))
            made = plan(Reference("split", {}, (), (0, 1), 0), buffers=(fixed, one))
            if library:
                made = plan(GraphOp("cudnn", "none", {}, (), (0, 1), 0, 0, (), 0, 0), buffers=(fixed, one))
                if not bytes_of(fixed) & bytes_of(one):
                    continue  # what a library's graph is, is not asked here
            assert refused(made) == bool(bytes_of(fixed) & bytes_of(one)), one


def test_a_copy_is_onto_itself_or_apart() -> None:
    fixed = Buffer("work", 64, "u8", (8,))
    for offset in range(50, 80):
        one = Buffer("work", offset, "u8", (8,))
        apart = offset == 64 or not bytes_of(fixed) & bytes_of(one)
        for made in (plan(Copy(0, 1, 0, 0), buffers=(fixed, one)), plan(Copy(1, 0, 0, 0), buffers=(fixed, one))):
            assert refused(made) != apart, one


def test_tensors_of_the_state_lie_apart_within_it_and_aligned() -> None:
    good = Artifact.of_bytes(small_artifact.artifact_bytes()).header
    for size in (1, 4, 16, 17):
        for offset in range(0, 200, 4):
            header = copy.deepcopy(dict(good))
            first, second = header["state"]["tensors"]
            first["shape"], second["offset"] = [size], offset
            wrong = offset % 64 != 0 or offset < 4 * size or offset + 24 > header["state"]["bytes"]
            try:
                check_header(header)
            except ArtifactError as error:
                assert wrong and error.code == "R301"
            else:
                assert not wrong, (size, offset)


def test_scalars_lie_within_the_step_block_at_their_size_and_apart() -> None:
    for dtype, size in (("f32", 4), ("i64", 8)):
        for offset in (*range(26), *range(STEP_BLOCK - 12, STEP_BLOCK + 9)):
            one = set(range(offset, offset + size))
            wrong = offset % size != 0 or max(one) >= STEP_BLOCK or bool(one & set(range(8, 16)))
            made = plan(buffers=(), scalars=(Scalar("step", 8, "i64"), Scalar("x", offset, dtype)))
            assert refused(made) == wrong, (dtype, offset)
