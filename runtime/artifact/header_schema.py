"""The header of an artifact as data: its words, the versions of its format, and its closed schema.

``header_rules.py`` has the rules between its fields, ``header.py`` the check of all of it.
"""

from __future__ import annotations

import keyword
from typing import Final

from dslc.base.schema import (
    Bool,
    Either,
    Enum,
    Float,
    Int,
    Json,
    ListOf,
    MapOf,
    Nullable,
    Record,
    Row,
    Text,
)
from dslc.runtime.artifact.dtypes import ITEMSIZE
from dslc.runtime.artifact.plan_schema import DOTTED, LAUNCH, MAX_RANK
from dslc.runtime.artifact.slices import MOST_SLICES

FORMAT: Final = (1, 4)
#: The first minor version whose header says how many bytes kernels touch.
WITH_EXTENTS: Final = 1
#: The minor version of a header that says which measurements the build obeyed; without any it has the version before.
WITH_LOCK: Final = 2
#: The minor version of a header that names the packages whose ops the model uses.
WITH_PACKAGES: Final = 3
#: The minor version of a header whose programs read what `prepare` computed from the weights.
WITH_PREPARED: Final = 4
#: The features that a reader must support to run an artifact; a newer minor version may name more.
FEATURES: Final = frozenset({"reference", "native", "cuda", "cublaslt", "cudnn", "accumulate", "average", "loss_scale",
                            "epoch_metrics", "shards", "turns", "state", "loop", "prepared", "together"})  # fmt: skip
#: The feature of a `predict` whose results depend on the number of rows: a call is not cut into pieces.
TOGETHER: Final = "together"
ENTRIES: Final = ("init", "accumulate_step", "train_step", "update_step", "eval_step", "eval_finish", "prepare",
                  "predict")  # fmt: skip
#: The entries that may write the state.
WRITERS: Final = ("init", "accumulate_step", "train_step", "update_step")
#: ``init`` of an optimizer slot that starts as a copy of its parameter and is set whenever the parameter is set.
AS_PARAM: Final = "param"
BLOB_KINDS: Final = ("plan", "constant", "ptx", "cubin", "object")
KINDS: Final = ("param", "buffer", "optimizer", "state")
#: The kinds of tensors that a file of weights has.
WEIGHTS: Final = ("param", "buffer")
#: The entries whose tensors that last from call to call lie in the region ``context``.
CARRYING: Final = ("eval_step", "predict")
#: The entry that computes from the weights what the other entries of ``PREPARED`` read, in the region ``prepared``.
PREPARE: Final = "prepare"
PREPARED: Final = (PREPARE, "predict")
STATE_ALIGNMENT: Final = 64
MOST_STEPS_PER_LAUNCH: Final = 1024
MOST_SHARDS: Final = 1024
#: The beginning of the names of the outputs of a shard, and of the inputs of `update_step`.
SHARD: Final = "shard."

_NO_KEYWORD: Final = "(?!(?:" + "|".join(sorted(keyword.kwlist)) + r")\Z)"
#: Names that are valid in Python: not a keyword, no leading double underscore.
IDENTIFIER: Final = rf"(?!__){_NO_KEYWORD}[A-Za-z_][A-Za-z0-9_]{{0,63}}"
_IDENTIFIER: Final = Text(64, IDENTIFIER, "an identifier that is not a Python keyword")
_TENSOR: Final = Text(256, DOTTED, "a dotted name")
_BLOB: Final = Text(64, DOTTED, "a blob's name")
_SHA: Final = Text(64, r"[0-9a-f]{64}", "a SHA-256 in hex")
_TARGET: Final = Text(64, r"[a-z0-9_.-]+", "a target")
_BYTES: Final = Int()
_DTYPE: Final = Enum(tuple(ITEMSIZE))
_SIZE: Final = Either(Int(), Text(400, r"[A-Za-z0-9_+*/() -]+", "a size in dims"))
_TENSORS: Final = ListOf(Record({"name": _IDENTIFIER, "dtype": _DTYPE, "shape": ListOf(_SIZE, MAX_RANK)}), 1024)
_RANGES: Final = MapOf(_IDENTIFIER, Row({"low": Int(-(1 << 63)), "end": Int(-(1 << 63))}), 1024)

_LIMITS: Final = MapOf(_IDENTIFIER, ListOf(_SIZE, 64), 1024)

INTERFACE: Final = Record(
    {
        "name": _IDENTIFIER,
        "model": _IDENTIFIER,
        "dims": ListOf(
            Record({"name": _IDENTIFIER, "low": Int(), "high": Int(), "default": Int()}, {"batch": Bool()}),
            256,
        ),
        "inputs": _TENSORS,
        "results": _TENSORS,
        "train": Nullable(
            Record(
                {
                    "inputs": _TENSORS,
                    "scalars": ListOf(Record({"name": _IDENTIFIER, "default": Float()}), 64),
                    "lr": Float(),
                    "metrics": ListOf(_IDENTIFIER, 256),
                },
                {
                    "ranges": _RANGES,
                    "limits": _LIMITS,
                    "accumulate": Int(2),
                    "shards": Int(2, MOST_SHARDS),
                    "update": Enum(("own", "all")),
                    "turns": ListOf(_IDENTIFIER, 256),
                    "epoch_metrics": ListOf(_IDENTIFIER, 256),
                },
            )
        ),
    },
    {
        "ranges": _RANGES,
        "limits": _LIMITS,
        "states": ListOf(
            Record({"name": _TENSOR, "dtype": _DTYPE, "shape": ListOf(_SIZE, MAX_RANK), "start": Float()}), 200_000
        ),
    },
)

HEADER: Final = Record(
    {
        "format": Row({"major": Int(0, 65535), "minor": Int(0, 65535)}),
        "required_features": ListOf(Text(64, r"[a-z][a-z0-9_]*", "a feature's name"), 64),
        "name": _IDENTIFIER,
        "model": _IDENTIFIER,
        "toolchain": MapOf(Text(64, r"[A-Za-z0-9_.-]+", "a tool's name"), Text(64), 64),
        "source_sha256": _SHA,
        "options": Json(table=True),
        "interface": INTERFACE,
        "interface_sha256": _SHA,
        "row_independent": Bool(),
        "state": Record(
            {
                "bytes": _BYTES,
                "tensors": ListOf(
                    Record(
                        {
                            "name": _TENSOR,
                            "kind": Enum(KINDS),
                            "dtype": _DTYPE,
                            "shape": ListOf(Int(), MAX_RANK),
                            "offset": _BYTES,
                            "init": Text(400),
                            "of": Nullable(_TENSOR),
                            "trained": Bool(),
                        }
                    ),
                    200_000,
                ),
                "forward_order": ListOf(_TENSOR, 200_000),
            },
            {"slices": Int(2, MOST_SLICES)},
        ),
        "programs": ListOf(
            Record(
                {
                    "entry": Enum(ENTRIES),
                    "target": _TARGET,
                    "provider": Text(64, r"[a-z0-9_.-]+", "a provider"),
                    "sizes": MapOf(_IDENTIFIER, Int(), 256),
                    "io_bytes": _BYTES,
                    "work_bytes": _BYTES,
                    "context_bytes": _BYTES,
                    "plan": _BLOB,
                    "lower_bound": _BYTES,
                    "planned": _BYTES,
                },
                {"context": MapOf(_TENSOR, _BYTES, 200_000), "prepared_bytes": Int(1), "turn": _IDENTIFIER},
            ),
            1024,
        ),
        "blobs": ListOf(
            Record({"name": _BLOB, "kind": Enum(BLOB_KINDS), "offset": _BYTES, "bytes": _BYTES, "sha256": _SHA}),
            65536,
        ),
    },
    {
        "kernels": ListOf(LAUNCH, 65536),
        "lock": MapOf(
            _TARGET,
            Record({"gpu": Text(400), "sha256": _SHA, "blocks": Int(1, 20_000), "versions": ListOf(Text(400), 20_000)}),
            64,
        ),
        "packages": ListOf(Record({"entry": Text(400), "name": Text(400), "version": Text(400), "sha256": _SHA}), 1024),
    },
)
