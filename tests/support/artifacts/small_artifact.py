"""A small artifact made by hand: y = x @ w, trained, with every part that a reader looks at."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from dslc.runtime.artifact.file import Blob, write_artifact
from dslc.runtime.artifact.instructions import Copy, Fill, Reference
from dslc.runtime.artifact.plan import Buffer, Constant, Plan, Port, Scalar

SCALARS = (Scalar("step", 0, "i64"), Scalar("seed", 8, "i64"), Scalar("row", 16, "i64"), Scalar("lr", 24, "f32"))
WHERE = ("w small.nn:3", "loss small.nn:9")
W = Buffer("state", 0, "f32", (3, 2))
VELOCITY = Buffer("state", 64, "f32", (3, 2))


def init_plan() -> Plan:
    return Plan(
        buffers=(W, VELOCITY),
        inputs=(),
        outputs=(),
        scalars=(SCALARS[1],),
        constants=(),
        instructions=(
            Reference("randn", {"std": 0.1, "key": 2**64 - 1}, (), (0,), 0),
            Fill(1, b"\0\0\0\0", 0, 0),
        ),
        names=WHERE,
    )


def predict_plan(rows: int) -> Plan:
    return Plan(
        buffers=(
            W,
            Buffer("io", 256, "f32", (rows, 3)),
            Buffer("io", 256 + 64 * rows, "f32", (rows, 2)),
            Buffer("work", 0, "f32", (rows, 2)),
            Buffer("work", 4096, "f32", (2,)),
        ),
        inputs=(Port("x", "data", 1),),
        outputs=(Port("output", "result", 2),),
        scalars=(),
        constants=(Constant(4, "bias", 0),),
        instructions=(
            Reference("matmul", {"transpose": [False, True]}, (1, 0), (3,), 0),
            Reference("add", {}, (3, 4), (3,), 0),
            Copy(3, 2, 0, 1),
        ),
        names=WHERE,
    )


def train_plan() -> Plan:
    return Plan(
        buffers=(
            W,
            VELOCITY,
            Buffer("io", 256, "f32", (4, 3)),
            Buffer("io", 512, "i32", (4,)),
            Buffer("io", 576, "f32", ()),
            Buffer("io", 640, "u8", (1,)),
            Buffer("io", 704, "f32", ()),
            Buffer("io", 24, "f32", ()),
        ),
        inputs=(Port("x", "data", 2), Port("label", "data", 3)),
        outputs=(
            Port("loss", "loss", 4),
            Port("nonfinite", "flags", 5),
            Port("metric.accuracy", "metric", 6),
        ),
        scalars=SCALARS,
        constants=(),
        instructions=(
            Reference("step", {}, (0, 1, 2, 3, 7), (0, 1, 4, 5, 6), 1),
        ),
        names=WHERE,
    )  # fmt: skip


def header() -> dict[str, Any]:
    """All of the header but what write_artifact adds."""

    def program(entry: str, plan: str, **sizes: int) -> dict[str, Any]:
        return {
            "entry": entry, "target": "cpu", "provider": "reference", "sizes": sizes, "io_bytes": 1024,
            "work_bytes": 4160, "context_bytes": 0, "plan": plan, "lower_bound": 32, "planned": 4160,
        }  # fmt: skip

    def tensor(name: str, kind: str, offset: int) -> dict[str, Any]:
        param = kind == "param"
        return {
            "name": name, "kind": kind, "dtype": "f32", "shape": [3, 2], "offset": offset,
            "init": "randn * 0.1" if param else "0", "of": None if param else "w", "trained": param,
        }  # fmt: skip

    return {
        "required_features": ["reference"],
        "name": "small",
        "model": "Small",
        "toolchain": {"dslc": "0.1.0", "python": "3.11"},
        "source_sha256": "ab" * 32,
        "options": {"precision": "f32", "sizes": {"B": 4}, "args": {"mid": 2.5}},
        "interface": {
            "name": "small",
            "model": "Small",
            "dims": [{"name": "B", "low": 1, "high": 512, "default": 4, "batch": True}],
            "inputs": [{"name": "x", "dtype": "f32", "shape": ["B", 3]}],
            "results": [{"name": "output", "dtype": "f32", "shape": ["B", 2]}],
            "train": {
                "inputs": [{"name": "label", "dtype": "i32", "shape": ["B"]}],
                "scalars": [{"name": "beta", "default": 1.0}],
                "lr": 0.02,
                "metrics": ["accuracy"],
                "ranges": {"label": [0, 2]},
            },
        },
        "row_independent": True,
        "state": {
            "bytes": 128,
            "tensors": [tensor("w", "param", 0), tensor("w.velocity", "optimizer", 64)],
            "forward_order": ["w"],
        },
        "programs": [
            program("init", "plan.0"),
            program("predict", "plan.1", B=1),
            program("predict", "plan.2", B=4),
            program("train_step", "plan.3", B=4),
        ],
        "kernels": [],
    }


def blobs() -> list[Blob]:
    plans = (init_plan(), predict_plan(1), predict_plan(4), train_plan())
    return [
        *(Blob(f"plan.{i}", "plan", plan.encode()) for i, plan in enumerate(plans)),
        Blob("bias", "constant", b"\0\0\x80\x3f\0\0\0\x40"),
    ]


def digest(interface: dict[str, Any]) -> str:
    """What a header says of its interface; by itself, so that a mistake of the real writer cannot hide here."""
    return hashlib.sha256(json.dumps(interface, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def artifact_bytes() -> bytes:
    return write_artifact(header(), blobs())
