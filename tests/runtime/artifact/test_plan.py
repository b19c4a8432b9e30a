"""The plan: every instruction reads back, and each rule of the check refuses what it is for, at its place."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from artifacts.small_artifact import WHERE

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact.instructions import (
    INSTRUCTIONS,
    BulkBegin,
    BulkEnd,
    Collective,
    Copy,
    EventRecord,
    EventWait,
    Fill,
    Gemm,
    GraphOp,
    Instruction,
    Kernel,
    Loop,
    LoopEnd,
    Reference,
    accesses,
)
from dslc.runtime.artifact.plan import Buffer, Constant, Plan, Port, Scalar, Work
from dslc.runtime.artifact.plan_check import BlobInfo, check

BUFFERS = (
    Buffer("work", 0, "f32", (4, 8)),  # 0
    Buffer("work", 128, "f32", (8, 2)),  # 1
    Buffer("work", 192, "f32", (4, 2)),  # 2
    Buffer("work", 256, "f32", (2,)),  # 3
    Buffer("work", 320, "u8", (64,)),  # 4
    Buffer("io", 256, "f32", (4, 8)),  # 5
    Buffer("state", 0, "f32", (8,)),  # 6
    Buffer("io", 0, "i64", ()),  # 7
    Buffer("work", 4, "f32", (4, 8)),  # 8: overlaps 0 and 1
    Buffer("work", 512, "f32", (8, 8)),  # 9: two of 0
)
KERNEL = Kernel(
    "code", "k_1", (4, 1, 1), (128, 1, 1), 0, (("in", 0), ("out", 2), ("i32", 7), ("f32", 0.5), ("scalar", 0)), 1, 0
)
GEMM = Gemm("cublaslt", 0, 1, None, 3, 2, 4, False, False, "f32", 1.0, 0.0, "relu", b"\x01\xff", 0, 0)
CONV = {"compute": "f32", "dilation": [1, 2], "layout": "first", "pad": [1, 0], "stride": [1, 2]}
GRAPH = GraphOp("cudnn", "conv", CONV, (10, 11), (12,), 4, 3, ((1, 2), (5, -1)), 0, 1)
IMAGES = (
    *BUFFERS,
    Buffer("work", 576, "f32", (1, 2, 3, 5)),  # 10: x
    Buffer("work", 704, "f32", (2, 2, 3, 2)),  # 11: w
    Buffer("work", 832, "f32", (1, 2, 3, 2)),  # 12: y
    Buffer("work", 580, "f32", (1, 2, 3, 5)),  # 13: x, not aligned
    Buffer("work", 704, "f16", (2, 2, 3, 2)),  # 14
    Buffer("work", 832, "u8", (64,)),  # 15: on y
    Buffer("work", 576, "f32", (1, 2, 3, 2)),  # 16: y on x
    Buffer("work", 704, "f32", (2, 4, 3, 2)),  # 17: w of more channels
    Buffer("work", 704, "f32", (3, 1, 3, 2)),  # 18: w of one channel, three filters
    Buffer("work", 832, "f32", (1, 3, 3, 2)),  # 19: their y
)
REFERENCE = Reference("softmax", {"axis": -1, "mask": None, "deep": {"a": [1.5, True]}}, (0,), (8, 9), 0)
ALL: tuple[Instruction, ...] = (
    BulkBegin(0), replace(REFERENCE, outputs=(2,)), Loop(2, ((2, 4),)), KERNEL, LoopEnd(), GEMM,
    GRAPH, EventRecord(3, 0), EventWait(3, 1),
    Copy(5, 0, 0, 1), Fill(0, b"\0\0\x80\x3f", 0, 1), Collective("all_reduce", "sum", 0, 5, 2, 1), BulkEnd(0),
)  # fmt: skip
BLOBS = {"code": BlobInfo("cubin", 10), "table": BlobInfo("constant", 16)}


def plan(*instructions: Instruction, **changes: Any) -> Plan:
    made = Plan(
        buffers=BUFFERS,
        inputs=(Port("x", "data", 5),),
        outputs=(Port("output", "result", 2),),
        scalars=(Scalar("step", 0, "i64"),),
        constants=(),
        instructions=instructions,
        names=WHERE,
    )
    return replace(made, **changes)


def _moved(index: int, offset: int) -> tuple[Buffer, ...]:
    return tuple(replace(b, offset=offset) if i == index else b for i, b in enumerate(BUFFERS))


def checked(made: Plan, **options: Any) -> None:
    check(made, 64, 0, 1024, 1024, blobs=BLOBS, **options)


def test_every_instruction_reads_back() -> None:
    made = plan(*ALL, buffers=IMAGES, work=(Work(0, "relu", 8, 64), Work(2, "conv_dgrad", 10**12, 0)))
    assert {type(i) for i in ALL} == set(INSTRUCTIONS.values())
    assert Plan.decode(made.encode()) == made
    assert Plan.decode(made.encode()).encode() == made.encode()
    checked(made)


def test_accesses() -> None:
    assert accesses(KERNEL) == ((0,), (2,))
    assert accesses(GEMM) == ((0, 1, 3), (2, 4))
    assert accesses(GRAPH) == ((10, 11), (12, 4))
    assert accesses(EventWait(0, 0)) == ((), ())


TABLE = (Constant(3, "table", 0),)
BAD: list[tuple[str, Plan, str, str]] = [
    ("beyond", plan(buffers=(*BUFFERS, Buffer("work", 1000, "f32", (7,)))), "buffers[10]", "the region has 1024"),
    ("huge", plan(buffers=(*BUFFERS, Buffer("work", 0, "f32", (2**62, 2**62)))), "buffers[10]", "the region has"),
    ("far", plan(buffers=(*BUFFERS, Buffer("work", 2**63 - 4, "f32", ()))), "buffers[10]", "the region has"),
    ("unaligned", plan(buffers=(*BUFFERS, Buffer("work", 2, "f32", ()))), "buffers[10]", "aligned"),
    ("no context", plan(buffers=(*BUFFERS, Buffer("context", 0, "u8", (1,)))), "buffers[10]", "has 0 bytes"),
    ("input buffer", plan(inputs=(Port("x", "data", 10),)), "inputs[0]", "no buffer 10"),
    ("input twice", plan(inputs=(Port("x", "data", 5), Port("x", "data", 5))), "inputs[1]", "twice"),
    ("inputs overlap", plan(inputs=(Port("x", "data", 5), Port("y", "data", 5))), "inputs", "share bytes"),
    ("input in work", plan(inputs=(Port("x", "data", 0),)), "inputs[0]", "not in io"),
    ("input in step block", plan(inputs=(Port("x", "data", 7),)), "inputs[0]", "after the step block"),
    ("output buffer", plan(outputs=(Port("y", "result", 99),)), "outputs[0]", "no buffer 99"),
    ("output twice", plan(outputs=(Port("y", "result", 2), Port("y", "result", 3))), "outputs[1]", "twice"),
    ("scalar unaligned", plan(scalars=(Scalar("lr", 2, "f32"),)), "scalars[0]", "aligned"),
    ("scalar beyond", plan(scalars=(Scalar("lr", 255, "f64"),)), "scalars[0]", "within the 256"),
    ("scalar twice", plan(scalars=(Scalar("lr", 0, "f32"), Scalar("lr", 4, "f32"))), "scalars[1]", "twice"),
    ("scalars overlap", plan(scalars=(Scalar("lr", 0, "f64"), Scalar("b", 4, "f32"))), "scalars[1]", "shares"),
    ("step", plan(scalars=(Scalar("step", 0, "f32"),)), "scalars[0]", "is i64"),
    ("constant blob", plan(constants=(Constant(3, "code", 0),)), "constants[0]", "no blob of kind constant"),
    ("constant beyond", plan(constants=(Constant(3, "table", 12),)), "constants[0]", "a blob of 16 bytes"),
    ("constant in state", plan(constants=(Constant(6, "table", 0),)), "constants[0]", "blob of 16"),
    ("constant in io", plan(constants=(Constant(7, "table", 0),)), "constants[0]", "not in the work"),
    ("constant written", plan(Fill(3, bytes(4), 0, 0), constants=TABLE), "instructions[0]", "the constant 'table'"),
    ("constants overlap", plan(constants=TABLE * 2), "constants", "share bytes"),
    ("read", plan(Copy(10, 0, 0, 0)), "instructions[0]", "no buffer 10"),
    ("write", plan(Copy(5, 10, 0, 0)), "instructions[0]", "no buffer 10"),
    ("where", plan(Copy(5, 0, 0, 2)), "instructions[0].where", "no name 2"),
    ("step block written", plan(Fill(7, bytes(8), 0, 0)), "instructions[0]", "step block"),
    ("outputs overlap", plan(replace(REFERENCE, outputs=(0, 8))), "instructions[0]", "share bytes"),
    ("copy in part", plan(Copy(0, 8, 0, 0)), "instructions[0]", "overlap in part"),
    ("copy of another size", plan(Copy(0, 1, 0, 0)), "instructions[0]", "does not fit"),
    ("fill", plan(Fill(0, b"\0", 0, 0)), "instructions[0].pattern", "1 bytes for"),
    ("kernel blob", plan(replace(KERNEL, blob="table")), "instructions[0].blob", "no blob of code"),
    ("kernel threads", plan(replace(KERNEL, block=(1024, 2, 1))), "instructions[0].block", "1024 threads"),
    ("kernel scalar", plan(replace(KERNEL, args=(("scalar", 1),))), "instructions[0].args", "no scalar 1"),
    ("kernel buffer", plan(replace(KERNEL, args=(("inout", 77),))), "instructions[0]", "no buffer 77"),
    ("gemm sizes", plan(replace(GEMM, transpose_a=True)), "instructions[0]", "does not give"),
    ("gemm bias", plan(replace(GEMM, bias=6)), "instructions[0]", "not one row"),
    ("gemm c", plan(replace(GEMM, c=1)), "instructions[0]", "is not like"),
    ("gemm sums", plan(replace(GEMM, compute="f64")), "instructions[0]", "sums of f32 in f64"),
    ("gemm works in numbers", plan(replace(GEMM, workspace=3)), "instructions[0]", "not bytes"),
    ("gemm works in out", plan(GEMM, buffers=_moved(4, 192)), "instructions[0]", "shares bytes"),
    ("gemm inner", plan(replace(GEMM, b=2)), "instructions[0]", "does not give"),
    ("gemm onto itself", plan(GEMM, buffers=_moved(2, 0)), "instructions[0]", "the result f32[4, 2] at work+0 shares"),
    ("gemm rank", plan(replace(GEMM, a=3)), "instructions[0]", "of one rank"),
    ("gemm workspace", plan(replace(GEMM, workspace=10)), "instructions[0]", "no buffer 10"),
    *(
        (f"graph {number}", plan(replace(GRAPH, **changes), buffers=IMAGES), "instructions[0]", words)
        for number, (changes, words) in enumerate(
            [
                ({"outputs": (10, 13)}, "share bytes"),
                ({"outputs": ()}, "one output"),
                ({"inputs": (11, 10)}, "do not give"),
                ({"inputs": (13, 11)}, "a multiple of 16"),
                ({"inputs": (10, 14)}, "has one dtype"),
                ({"inputs": (0, 1)}, "four or five axes"),
                ({"inputs": (10, 17)}, "do not give"),
                ({"inputs": (10, 18), "outputs": (19,)}, "do not give"),  # two groups, three filters
                ({"kind": "conv_wgrad"}, "do not give"),
                ({"kind": "norm"}, "has no operation `norm`"),
                ({"provider": "cublaslt"}, "no operation graphs"),
                ({"workspace": 15}, "shares bytes"),
                ({"outputs": (16,)}, "the result f32[1, 2, 3, 2] at work+576 shares bytes"),
                ({"attrs": {**CONV, "groups": 2}}, "the attributes of a convolution"),
                ({"attrs": {**CONV, "stride": [0, 1]}}, "two ints each"),
                ({"attrs": {**CONV, "pad": [1, 2**31]}}, "two ints each"),
                ({"attrs": {**CONV, "stride": [1, True]}}, "two ints each"),
                ({"attrs": {**CONV, "dilation": [1, 1, 1]}}, "two ints each"),
            ]
        )
    ),
    ("all_reduce", plan(Collective("all_reduce", "sum", 0, 1, 0, 0)), "instructions[0]", "does not fit"),
    ("reduce_scatter", plan(Collective("reduce_scatter", "sum", 0, 9, 0, 0)), "instructions[0]", "does not fit"),
    ("wait", plan(EventWait(1, 0), EventRecord(1, 0)), "instructions[0]", "before it is recorded"),
    ("bulk number", plan(BulkBegin(1)), "instructions[0]", "bulk 0 is next"),
    ("bulk nested", plan(BulkBegin(0), BulkBegin(1)), "instructions[1]", "still open"),
    ("bulk end", plan(BulkEnd(0)), "instructions[0]", "not open"),
    ("bulk open", plan(BulkBegin(0)), "instructions", "has no end"),
    ("work after the end", plan(work=(Work(0, "relu", 0, 0),)), "work[0]", "not in the plan"),
    ("work twice", plan(BulkBegin(0), BulkEnd(0), work=(Work(1, "relu", 0, 0),) * 2), "work[1]", "not after 1"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "field", "rule"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_each_rule_refuses_at_its_place(made: Plan, field: str, rule: str) -> None:
    assert Plan.decode(made.encode()) == made  # the schema allows it: the check alone must find it
    with pytest.raises(ArtifactError) as caught:
        checked(made)
    assert caught.value.code == "R301"
    assert caught.value.place == f"plan: {field}" and rule in caught.value.message


def test_collectives_of_several_parts_fit() -> None:
    checked(plan(Collective("all_gather", "none", 0, 9, 0, 0), Collective("reduce_scatter", "sum", 9, 0, 0, 0)))


def test_the_state_is_written_only_where_the_entry_may() -> None:
    made = plan(Fill(6, bytes(4), 0, 0))
    checked(made)
    with pytest.raises(ArtifactError) as caught:
        checked(made, writes_state=False)
    assert "may not change the state" in caught.value.message


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (plan(replace(KERNEL, grid=(0, 1, 1))), "instructions[0].grid.x"),
        (plan(replace(KERNEL, grid=(1, 65536, 1))), "instructions[0].grid.y"),
        (plan(replace(KERNEL, block=(1, 1, 65))), "instructions[0].block.z"),
        (plan(replace(KERNEL, shared_bytes=232449)), "instructions[0].shared_bytes"),
        (plan(replace(KERNEL, args=(("i32", 2**31),))), "instructions[0].args[0].value"),
        (plan(replace(KERNEL, args=(("f32", 1),))), "instructions[0].args[0].value"),
        (plan(replace(KERNEL, symbol="a b")), "instructions[0].symbol"),
        (plan(replace(KERNEL, stream=16)), "instructions[0].stream"),
        (plan(replace(REFERENCE, op="os.system('x')")), "instructions[0].op"),
        (plan(replace(REFERENCE, inputs=(-1,))), "instructions[0].inputs[0]"),
        (plan(replace(REFERENCE, attrs={"a": 2**64})), "instructions[0].attrs"),
        (plan(buffers=(Buffer("work", -4, "f32", ()),)), "buffers[0].offset"),
        (plan(buffers=(Buffer("heap", 0, "f32", ()),)), "buffers[0].region"),  # type: ignore[arg-type]
        (plan(buffers=(Buffer("work", 0, "f32", (-1,)),)), "buffers[0].shape[0]"),
        (plan(names=("a\nb",)), "names[0]"),
        (plan(inputs=(Port("../x", "data", 5),)), "inputs[0].name"),
    ],
)
def test_the_schema_refuses_at_its_place(made: Plan, field: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        made.encode()
    assert caught.value.place == f"plan: {field}"


#: The last that the schema takes, and the first beyond it.
LIMITS: list[tuple[Plan, Plan]] = [
    (plan(EventRecord(65535, 0)), plan(EventRecord(65536, 0))),
    (plan(EventWait(0, 15)), plan(EventWait(0, 16))),
    (plan(replace(KERNEL, symbol="k" * 128)), plan(replace(KERNEL, symbol="k" * 129))),
    (plan(replace(KERNEL, grid=(2**31 - 1, 65535, 65535))), plan(replace(KERNEL, grid=(2**31, 1, 1)))),
    (plan(replace(KERNEL, block=(1024, 1024, 64))), plan(replace(KERNEL, block=(1025, 1, 1)))),
    (plan(replace(KERNEL, block=(1, 1, 64))), plan(replace(KERNEL, block=(1, 0, 64)))),
    (plan(replace(KERNEL, shared_bytes=232448)), plan(replace(KERNEL, shared_bytes=-1))),
    (plan(replace(KERNEL, args=(("i32", -(2**31)),))), plan(replace(KERNEL, args=(("i32", -(2**31) - 1),)))),
    (plan(replace(KERNEL, args=(("i64", -(2**63)),))), plan(replace(KERNEL, args=(("i64", -(2**63) - 1),)))),
    (plan(replace(KERNEL, args=(("i64", 2**63 - 1),))), plan(replace(KERNEL, args=(("i64", 2**63),)))),
    (plan(replace(KERNEL, args=(("scalar", 255),))), plan(replace(KERNEL, args=(("scalar", 256),)))),
    (plan(replace(KERNEL, args=(("in", 0),) * 1024)), plan(replace(KERNEL, args=(("in", 0),) * 1025))),
    (plan(replace(GEMM, algorithm=b"a" * 256)), plan(replace(GEMM, algorithm=b"a" * 257))),
    (plan(replace(GRAPH, engine=-1)), plan(replace(GRAPH, engine=-2))),
    (plan(replace(GRAPH, knobs=((2**31 - 1, 0),) * 64)), plan(replace(GRAPH, knobs=((0, 0),) * 65))),
    (plan(Fill(0, b"a" * 8, 0, 0)), plan(Fill(0, b"a" * 9, 0, 0))),
    (plan(Fill(0, b"a", 0, 0)), plan(Fill(0, b"", 0, 0))),
    (plan(Fill(999_999, b"a", 0, 0)), plan(Fill(1_000_000, b"a", 0, 0))),
    (plan(replace(REFERENCE, inputs=(0,) * 4096)), plan(replace(REFERENCE, inputs=(0,) * 4097))),
    (plan(replace(REFERENCE, op="a" * 64)), plan(replace(REFERENCE, op="a" * 65))),
    (plan(replace(REFERENCE, attrs={})), plan(replace(REFERENCE, attrs=[]))),  # type: ignore[arg-type]
    (plan(replace(GRAPH, attrs={})), plan(replace(GRAPH, attrs=1))),  # type: ignore[arg-type]
    (plan(buffers=(Buffer("io", 2**63 - 1, "u8", ()),)), plan(buffers=(Buffer("io", 2**63, "u8", ()),))),
    (plan(buffers=(Buffer("io", 0, "u8", (1,) * 16),)), plan(buffers=(Buffer("io", 0, "u8", (1,) * 17),))),
    (plan(scalars=(Scalar("step", 255, "i64"),)), plan(scalars=(Scalar("step", 256, "i64"),))),
    (plan(names=("a" * 512,)), plan(names=("a" * 513,))),
]


@pytest.mark.parametrize("number", range(len(LIMITS)))
def test_the_schema_takes_up_to_its_limits(number: int) -> None:
    last, beyond = LIMITS[number]
    assert Plan.decode(last.encode()) == last
    with pytest.raises(ArtifactError) as caught:
        beyond.encode()
    assert caught.value.code == "R301"


def test_values_that_json_lacks() -> None:
    for attrs in ({"a": float("inf")}, {"a": {1: 2}}, {"a": {"b", "c"}}):
        with pytest.raises(ArtifactError):
            plan(replace(REFERENCE, attrs=attrs)).encode()


@pytest.mark.slow
def test_a_large_plan_in_time(allowed: Callable[[float, float], bool]) -> None:
    """40,000 instructions over 60,000 buffers: the size of a 4,000-layer MLP's training step."""
    count = 60_000
    buffers = (*(Buffer("work", 64 * i, "f32", (4, 4)) for i in range(count)), Buffer("io", 64, "f32", (1,)))
    made = Plan(
        buffers=buffers,
        inputs=(),
        outputs=(),
        scalars=(),
        constants=(),
        instructions=tuple(Reference("add", {"axis": 0}, (i, i + 1), (i + 2,), i % 10_000) for i in range(40_000)),
        names=tuple(f"stack.{i}.linear deep.nn:{i}" for i in range(10_000)),
    )
    blob = made.encode()
    start = time.process_time()
    again = Plan.decode(blob)
    check(again, 0, 0, 256, 64 * count)
    seconds = time.process_time() - start
    print(f"{len(blob)} bytes, {seconds:.2f} s of the processor")
    assert allowed(seconds, 10.0)  # 1.3 on a quiet core
