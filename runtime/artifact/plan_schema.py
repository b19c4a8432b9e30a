"""The closed schema of a plan as data, its keywords, and its limits."""

from __future__ import annotations

from typing import Final

from dslc.base.schema import (
    INT_HIGH,
    INT_LOW,
    Bool,
    Enum,
    Float,
    Int,
    Json,
    ListOf,
    Nullable,
    Record,
    Row,
    Schema,
    Tagged,
    Text,
    checker,
)
from dslc.runtime.artifact.dtypes import ITEMSIZE
from dslc.runtime.artifact.reserved import STEP_BLOCK

# Limits for all plans of an artifact together, which are decoded and checked in less than two seconds and 512 MiB:
# 2,400,000 values in the rows that take longest, `fill` and `wait`, took 1.2 s and 300 MiB on one core. The seven plans
# of ResNet-50 have 0.4 MiB and 90,000 values; the eight of RCAN at its paper's size (200 blocks) have 1,470,000, of
# which the largest, the training step's, has 590,000 and takes 0.2 s.
MAX_BYTES: Final = 16 << 20
MAX_VALUES: Final = 2_400_000
MAX_ITEMS: Final = 1_000_000  # entries of one list
MAX_RANK: Final = 16
MAX_STEPS: Final = 1_000_000  # instructions that the loops of a plan run altogether
STREAMS: Final = 16
EVENTS: Final = 65536
#: CUDA's limits for grids and blocks, compute capability 5.0 and later.
GRID: Final = (2**31 - 1, 65535, 65535)
BLOCK: Final = (1024, 1024, 64)
THREADS: Final = 1024
SHARED_BYTES: Final = 232448  # 227 KiB, the most that any supported device gives a block

#: Inputs or outputs: a shard of a large model returns a gradient for each of its parameters.
PORTS: Final = 1 << 16

REGIONS: Final = ("state", "context", "prepared", "io", "work")
INPUT_KINDS: Final = ("data",)
OUTPUT_KINDS: Final = (
    "result",
    "loss",
    "metric",
    "flags",
    "scale",
    "skipped",
    "partial.sum",
    "partial.max",
    "partial.min",
    "count",
    "shard",
)
PROVIDERS: Final = ("own", "blas", "cublaslt", "cudnn")
EPILOGUES: Final = ("none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh")
COLLECTIVES: Final = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
REDUCTIONS: Final = ("none", "sum", "max", "min")

#: No quotes, spaces or slashes: so a name is never a path.
DOTTED: Final = r"[A-Za-z0-9_]+(?:[.#][A-Za-z0-9_]+)*"
_INDEX: Final = Int(0, MAX_ITEMS - 1)
_OFFSET: Final = Int(0, INT_HIGH)
_DTYPE: Final = Enum(tuple(ITEMSIZE))
_STREAM: Final = Int(0, STREAMS - 1)
_EVENT: Final = Int(0, EVENTS - 1)
_OP: Final = Text(64, r"[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*", "an op's name")
_NAME: Final = Text(256, DOTTED, "a dotted name")
_BLOB: Final = Text(64, DOTTED, "a blob's name")
_SYMBOL: Final = Text(128, r"[A-Za-z_][A-Za-z0-9_]*", "a kernel's name")
_WHERE: Final = _INDEX
_BUFFERS: Final = ListOf(_INDEX, 4096)
_TAG: Final = Text(16)


def _dim3(limits: tuple[int, int, int]) -> Row:
    return Row({axis: Int(1, limit) for axis, limit in zip("xyz", limits)})


def _row(**fields: Schema) -> Row:
    return Row({"tag": _TAG, **fields})


_ARG: Final = Tagged(
    {
        "in": _row(buffer=_INDEX),
        "out": _row(buffer=_INDEX),
        "inout": _row(buffer=_INDEX),
        "scalar": _row(scalar=Int(0, STEP_BLOCK - 1)),
        "i32": _row(value=Int(-(2**31), 2**31 - 1)),
        "i64": _row(value=Int(INT_LOW, INT_HIGH)),
        "f32": _row(value=Float()),
        "f64": _row(value=Float()),
    }
)

#: A row of the header's `kernels`.
LAUNCH: Final = Row(
    {
        "symbol": _SYMBOL,
        "grid": _dim3(GRID),
        "block": _dim3(BLOCK),
        "shared_bytes": Int(0, SHARED_BYTES),
        "kinds": Text(1024, r"[rwbsv]*", "a letter for each argument"),
        "values": ListOf(Tagged({kind: row for kind, row in _ARG.kinds.items() if "value" in row.fields}), 1024),
        "bytes": ListOf(_OFFSET, 1024),
    }
)

INSTRUCTION: Final = Tagged(
    {
        "reference": _row(op=_OP, attrs=Json(table=True), inputs=_BUFFERS, outputs=_BUFFERS, where=_WHERE),
        "kernel": _row(
            blob=_BLOB,
            symbol=_SYMBOL,
            grid=_dim3(GRID),
            block=_dim3(BLOCK),
            shared_bytes=Int(0, SHARED_BYTES),
            args=ListOf(_ARG, 1024),
            stream=_STREAM,
            where=_WHERE,
        ),
        "gemm": _row(
            provider=Enum(PROVIDERS),
            a=_INDEX,
            b=_INDEX,
            c=Nullable(_INDEX),
            bias=Nullable(_INDEX),
            out=_INDEX,
            workspace=Nullable(_INDEX),
            transpose_a=Bool(),
            transpose_b=Bool(),
            compute=Enum(("f32", "f64", "tf32")),
            alpha=Float(),
            beta=Float(),
            epilogue=Enum(EPILOGUES),
            algorithm=Text(512, r"(?:[0-9a-f]{2})*", "bytes in hex"),
            stream=_STREAM,
            where=_WHERE,
        ),
        "graph": _row(
            provider=Enum(PROVIDERS),
            kind=_OP,
            attrs=Json(table=True),
            inputs=_BUFFERS,
            outputs=_BUFFERS,
            workspace=Nullable(_INDEX),
            engine=Int(-1, 2**31 - 1),
            knobs=ListOf(Row({"knob": Int(0, 2**31 - 1), "value": Int(-(2**31), 2**31 - 1)}), 64),
            stream=_STREAM,
            where=_WHERE,
        ),
        "copy": _row(src=_INDEX, dst=_INDEX, stream=_STREAM, where=_WHERE),
        "fill": _row(
            dst=_INDEX,
            pattern=Text(16, r"(?:[0-9a-f]{2}){1,8}", "1 to 8 bytes in hex"),
            stream=_STREAM,
            where=_WHERE,
        ),
        "record": _row(event=_EVENT, stream=_STREAM),
        "wait": _row(event=_EVENT, stream=_STREAM),
        "bulk_begin": _row(index=_INDEX),
        "bulk_end": _row(index=_INDEX),
        "loop": _row(
            count=Int(1, MAX_STEPS), strides=ListOf(Row({"buffer": _INDEX, "bytes": Int(INT_LOW, INT_HIGH)}), MAX_ITEMS)
        ),
        "loop_end": _row(),
        "collective": _row(
            kind=Enum(COLLECTIVES), op=Enum(REDUCTIONS), src=_INDEX, dst=_INDEX, stream=_STREAM, where=_WHERE
        ),
    }
)

PLAN: Final = Record(
    {
        "buffers": ListOf(
            Row(
                {
                    "region": Enum(REGIONS),
                    "offset": _OFFSET,
                    "dtype": _DTYPE,
                    "shape": ListOf(Int(0, INT_HIGH), MAX_RANK),
                }
            ),
            MAX_ITEMS,
        ),
        "inputs": ListOf(Row({"name": _NAME, "kind": Enum(INPUT_KINDS), "buffer": _INDEX}), PORTS),
        "outputs": ListOf(Row({"name": _NAME, "kind": Enum(OUTPUT_KINDS), "buffer": _INDEX}), PORTS),
        "scalars": ListOf(Row({"name": _NAME, "offset": Int(0, STEP_BLOCK - 1), "dtype": _DTYPE}), 64),
        "constants": ListOf(Row({"buffer": _INDEX, "blob": _BLOB, "offset": _OFFSET}), 65536),
        "instructions": ListOf(INSTRUCTION, MAX_ITEMS),
        "names": ListOf(Text(512, called="a node's path and source line"), MAX_ITEMS),
    },
    {
        "work": ListOf(
            Row({"first": _INDEX, "op": _OP, "flops": Int(0, INT_HIGH), "bytes": Int(0, INT_HIGH)}), MAX_ITEMS, 1
        )
    },
)

check: Final = checker(PLAN)
