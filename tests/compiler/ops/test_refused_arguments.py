"""Arguments of activations, norms, losses and reductions that are refused, each with its code."""

from __future__ import annotations

from typing import Any

import pytest
from op_laws.recorder import Recorder

from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.types import DType

REFUSED: list[tuple[str, list[tuple[int, ...]], dict[str, Any], str]] = [
    ("layernorm", [(8, 3, 4)], {"axis": (0, 2)}, "E0306"),
    ("rmsnorm", [(8, 3, 4)], {"axis": (0, 3)}, "E0306"),
    ("local_response_norm", [(8, 3, 4)], {"size": 0}, "E0209"),
    ("local_response_norm", [(8,)], {"size": 3}, "E0203"),
    ("spectral_norm", [(8,)], {}, "E0306"),
    ("prelu", [(8,)], {"channels": True}, "E0203"),
    ("glu", [(8, 3)], {}, "E0303"),
    ("celu", [(8, 3)], {"alpha": 0.0}, "E0209"),
    ("hardtanh", [(8, 3)], {"low": 1.0, "high": 1.0}, "E0209"),
    ("hardshrink", [(8, 3)], {"lambd": -1.0}, "E0209"),
    ("softshrink", [(8, 3)], {"lambd": -1.0}, "E0209"),
    ("bce_with_logits", [(8, 3), (8, 3)], {"pos_weight": (1.0, 2.0)}, "E0302"),
    ("bce_with_logits", [(8, 3), (8, 3)], {"pos_weight": (-1.0,)}, "E0209"),
    ("smooth_l1", [(8, 3), (8, 3)], {"beta": 0.0}, "E0209"),
    ("focal", [(8, 3), (8, 3)], {"gamma": -1.0}, "E0209"),
    ("dice", [(8,), (8,)], {}, "E0306"),
    ("bce", [(8, 3), (8,)], {}, "E0302"),
    ("soft_margin", [(8, 3), (8,)], {}, "E0302"),
    ("multilabel_margin", [(8, 3), (8, 4)], {}, "E0302"),
    ("multilabel_margin", [(), ()], {}, "E0302"),
    ("multilabel_soft_margin", [(8, 3), (8, 3)], {"weight": (1.0, 2.0)}, "E0302"),
    ("gumbel_softmax", [(8, 3)], {"tau": 0.0}, "E0209"),
    ("rrelu", [(8, 3)], {"lower": 0.5, "upper": 0.25}, "E0209"),
    ("lp_pool", [(8, 3, 9)], {"p": 0.5, "k": (3,)}, "E0209"),
    ("channel_shuffle", [(8, 6, 4)], {"groups": 4}, "E0303"),
    ("channel_shuffle", [(8, 6, 4)], {"groups": 0}, "E0209"),
    ("channel_shuffle", [(8, 6)], {"groups": 2}, "E0306"),
    ("pixel_shuffle", [(8, 6, 4, 4)], {"r": 2}, "E0303"),
    ("pixel_unshuffle", [(8, 6, 4, 5)], {"r": 2}, "E0303"),
    ("hinge", [(8, 3), (8,)], {}, "E0302"),
    ("margin_ranking", [(8,), (7,), (8,)], {}, "E0302"),
    ("triplet_margin", [(8, 3), (8, 3), (8, 4)], {}, "E0302"),
    ("cosine_embedding", [(8, 3), (8, 3), (8, 3)], {}, "E0302"),
    ("cross_entropy", [(8, 3), (8, 3)], {"ignore_index": 1}, "E0209"),
    ("cross_entropy", [(8, 3), (8, 3)], {"smoothing": -0.1}, "E0209"),
    ("cross_entropy", [(8, 3), (8, 3)], {"weight": (1.0, 2.0)}, "E0302"),
    ("cross_entropy", [(8, 3), (8, 4)], {}, "E0302"),
    ("maxpool", [(8, 3, 9)], {"k": (3,), "dilation": (2,), "pad": (3,)}, "E0209"),
    ("maxpool", [(8, 3, 2)], {"k": (2,), "dilation": (3,), "pad": (1,)}, "E0209"),
    ("maxpool", [(8, 3, 4)], {"k": (3,), "dilation": (2,)}, "E0308"),
    ("maxpool", [(8, 3, 4)], {"k": (3,), "dilation": (0,)}, "E0209"),
    ("avgpool", [(8, 3, 9)], {"k": (3,), "dilation": (2,), "pad": (3,)}, "E0209"),
    ("avgpool", [(8, 3, 9)], {"k": (3,), "divisor": 0}, "E0209"),
    ("maxunpool", [(8, 3, 9), (8, 3, 8)], {"k": (3,)}, "E0302"),
    ("unfold", [(8, 3, 4)], {"k": (5,)}, "E0308"),
    ("unfold", [(8, 3)], {"k": (2,)}, "E0203"),
    ("fold", [(8, 4, 4)], {"size": (6,), "k": (3,)}, "E0302"),
    ("fold", [(8, 6, 4)], {"size": (6, 1, 1), "k": (3, 1)}, "E0209"),
    ("cdist", [(8, 3), (8, 4)], {}, "E0302"),
    ("cdist", [(3,), (8, 3)], {}, "E0302"),
    ("cdist", [(8, 3), (8, 3)], {"p": 0.5}, "E0209"),
    ("ctc", [(8, 5), (8, 3), (8,), (8,)], {}, "E0203"),
    ("ctc", [(8, 5, 4), (8, 3), (8,), (8,)], {}, "E0204"),
    ("ctc", [(8, 5, 4), (8, 3), (8,), (8,)], {"blank": 4}, "E0209"),
    ("dft", [(8, 4), (8, 3)], {}, "E0302"),
    ("dft", [(8, 4), (8, 4)], {"onesided": True}, "E0209"),
    ("dft", [(8, 4)], {"onesided": True, "inverse": True}, "E0209"),
    ("dft", [(8, 4)], {"size": 4}, "E0209"),
    ("dft", [(8, 5), (8, 5)], {"onesided": True, "inverse": True, "size": 10}, "E0302"),
    ("dft", [(8, 0)], {}, "E0308"),
    ("dft", [(8, 4)], {"axis": 2}, "E0306"),
    ("weight_norm", [(8, 4), (4,)], {}, "E0302"),
    ("weight_norm", [(8,), (8,)], {}, "E0306"),
    ("std", [(8, 1)], {"over": (1,), "correction": 1}, "E0308"),
    ("cumprod", [(8, 3)], {"axis": 2}, "E0306"),
    ("any", [(8, 3)], {}, "E0203"),
    ("all", [(8, 3)], {}, "E0203"),
    ("bitwise_and", [(8, 3), (8, 3)], {}, "E0203"),
]


@pytest.mark.parametrize(
    ("name", "shapes", "named", "code"), REFUSED, ids=[f"{i}-{r[0]}" for i, r in enumerate(REFUSED)]
)
def test_arguments_that_do_not_fit_are_refused(
    name: str, shapes: list[tuple[int, ...]], named: dict[str, Any], code: str
) -> None:
    call = Recorder(DType.F64)
    with pytest.raises(Mismatch) as caught:
        call.build(name, *(call.tensor(*shape) for shape in shapes), **named)
    assert caught.value.code == code and caught.value.why


@pytest.mark.parametrize("name", ["tan", "atan2", "mish", "isnan", "erfc", "hardsigmoid"])
def test_integers_are_refused_where_floats_are_needed(name: str) -> None:
    call = Recorder(DType.F64)
    count = 2 if name == "atan2" else 1
    with pytest.raises(Mismatch, match="float"):
        call.build(name, *(call.tensor(4, dtype=DType.I32) for _ in range(count)))
