"""The model of attention's time chooses what was measured faster."""

from __future__ import annotations

from typing import Any

import pytest

from dslc.compiler.codegen.cuda.attention.pace import PACES, Attended
from dslc.compiler.codegen.cuda.libraries.cudnn_attention import attention_call, why_own_attention
from dslc.compiler.codegen.cuda.libraries.library import NoCall
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.products.attention import sdpa, sdpa_grad

#: Batch, heads, heads of keys, queries, keys, features, causal, window; then microseconds on an H200 on 2026-11-28: own
#: forward, own gradient, cuDNN forward, cuDNN gradient.
SEEN: Any = [
    ((16, 12, 12, 1024, 1024, 64, True, 0), (114.9, 349.3, 83.7, 296.9)),
    ((16, 12, 12, 1024, 1024, 64, False, 0), (172.0, 566.3, 124.3, 509.3)),
    ((8, 12, 4, 1024, 1024, 64, True, 0), (65.9, 211.9, 48.2, 181.3)),
    ((4, 16, 1, 2048, 2048, 128, True, 0), (279.0, 1033.4, 141.2, 486.2)),
    ((64, 12, 12, 197, 197, 64, False, 0), (58.2, 158.7, 49.3, 175.8)),
    ((32, 12, 12, 128, 128, 64, False, 0), (10.5, 38.1, 10.8, 38.4)),
    ((4, 16, 16, 2048, 2048, 40, True, 0), (152.0, 463.0, 102.0, 355.4)),
    ((4, 16, 16, 2048, 2048, 32, True, 0), (98.2, 254.8, 101.2, 341.4)),
    ((1, 16, 16, 8192, 8192, 64, True, 0), (522.4, 1577.2, 339.0, 1148.7)),
    ((8, 32, 8, 1024, 1024, 128, True, 0), (280.3, 966.5, 152.7, 551.7)),
    ((256, 12, 12, 64, 64, 32, False, 0), (14.7, 45.8, 57.4, 121.7)),
    ((8, 6, 6, 256, 256, 64, True, 0), (7.1, 19.8, 7.9, 19.5)),
    ((4, 16, 4, 4096, 4096, 64, True, 256), (130.7, 350.0, 88.7, 1186.3)),
    ((8, 12, 12, 1024, 1024, 64, False, 65), (35.1, 89.5, 41.4, 278.5)),
    ((4, 8, 8, 2048, 2048, 256, True, 0), (327.6, 1412.0, 146.4, 667.8)),
    ((4, 8, 8, 2048, 2048, 256, False, 0), (502.9, 2216.0, 204.1, 1205.4)),
    ((4, 8, 8, 2048, 2048, 192, True, 0), (225.4, 917.9, 116.8, 616.8)),
]


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize(("sizes", "times"), SEEN, ids=str)
def test_what_was_measured_faster_is_chosen(sizes: Any, times: Any, gradient: bool) -> None:
    batch, heads, kept, queries, keys, features, causal, window = sizes
    own, cudnn = times[gradient], times[2 + gradient]
    one = Attended(batch * heads, queries, keys, features, causal, window)
    assert 0.7 < 1e6 * PACES["cudnn", gradient].seconds(one) / cudnn < 1.3
    assert 0.65 < 1e6 * PACES["own", gradient].seconds(one) / own < 1.6
    shapes = [(batch, n, length, features) for n, length in ((heads, queries), (kept, keys), (kept, keys))]
    q, k, v = (Input("x", Kind.DATA, TensorType(DType.BF16, shape)).value for shape in shapes)
    attrs = {"causal": causal, "scale": features**-0.5, **({"window": window} if window else {})}
    node = Builder().node(sdpa, q, k, v, **attrs)
    if gradient:
        node = Builder().node(sdpa_grad, q, k, v, *node.outputs, q, **attrs)
    call = attention_call(node)
    if isinstance(call, NoCall):
        assert call == NoCall("scores that take more than 2 GiB") and gradient
        return
    called = why_own_attention(call, "sm_90") is None
    assert cudnn < own if called else cudnn > 0.85 * own or own - cudnn < 5
