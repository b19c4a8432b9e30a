"""The function ``sdpa`` of the language."""

from __future__ import annotations

import math
from dataclasses import replace

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Attr, Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ops.products.attention import sdpa
from dslc.compiler.ops.products.attention_terms import (
    Terms,
    both,
    check_bias,
    check_mask,
    check_operands,
    composed,
    plain,
    positions,
    within,
)
from dslc.compiler.ops.spatial.conv import float_dtype


class SdpaFunction(Function):
    """sdpa(q, k, v, causal=false, mask=none, scale=1/sqrt(d)): attention, ``softmax(scale * q k^T) v``.

    q is ``[..., Tq, d]``, k ``[..., Tk, d]``, v ``[..., Tk, e]``, with the same leading axes (batch, heads). k and v
    may have fewer heads, a divisor of q's: each then serves as many consecutive heads of q, and is not repeated.
    ``causal`` lets a query attend only to its own and earlier positions, and needs Tq = Tk.

    - ``mask`` is b1, broadcasts to ``[..., Tq, Tk]`` and is true where attention is allowed.
    - ``lengths`` holds integers with the first axes of q, such as ``i32[B]``: a row sees so many first keys;
      all of them for a number above Tk, none for a negative one.
    - ``window``: keys less than ``window`` positions away from the query are seen; needs Tq = Tk.
    - ``softcap``: the scaled scores become ``softcap * tanh(scores / softcap)``.
    - ``bias`` is float, broadcasts to ``[..., Tq, Tk]`` and is added to the scores after that; it has a gradient.
    - ``dropout``: in training, each probability is 0 with this probability, else divided by ``1 - dropout``.

    A query that may attend to nothing gives 0. With ``softcap`` or ``dropout`` the scores lie in memory, and with
    ``bias`` unless a GPU computes in 16 bits or TF32.

    given: q: [B, 4, 16, 32], k: [B, 2, 16, 32], v: [B, 2, 16, 32], n: i32[B]
    >>> y = sdpa(q, k, v, causal=true, window=4)
    >>> z = sdpa(q, k, v, lengths=n, softcap=50.0)
    """

    name = "sdpa"

    def build(
        self,
        call: Call,
        q: Value,
        k: Value,
        v: Value,
        causal: bool = False,
        mask: Value | None = None,
        scale: float | None = None,
        *,
        bias: Value | None = None,
        lengths: Value | None = None,
        window: int | None = None,
        softcap: float | None = None,
        dropout: float = 0.0,
    ) -> Value:
        float_dtype("sdpa", [q.type, k.type, v.type])
        check_operands(q.type, k.type, v.type, causal or window is not None)
        if scale is None:
            features = q.type.shape[-1]
            if not isinstance(features, int):
                raise Mismatch(f"the features of q, {features}, are not fixed", "`scale=0.125`, for instance", "E0307")
            scale = 1 / math.sqrt(features)
        if not math.isfinite(scale):
            raise Mismatch(f"`scale` of `sdpa` is {scale}", "a finite number", "E0209")
        if softcap is not None and not 0 < softcap < math.inf:
            raise Mismatch(f"`softcap` of `sdpa` is {softcap:g}", "a finite number above 0", "E0209")
        if not 0 <= dropout < 1:
            raise Mismatch(f"`dropout` of `sdpa` is {dropout:g}", "from 0 to below 1", "E0209")
        if window is not None and window < 1:
            raise Mismatch(f"`window` of `sdpa` is {window}", "at least 1, the query's own position", "E0209")
        if mask is not None:
            check_mask(q.type, k.type, mask.type)
        if bias is not None:
            check_bias(q.type, k.type, bias.type)
        if lengths is not None:
            mask = both(call.emit, mask, within(call, q, k, lengths))
        attrs: dict[str, Attr] = {"causal": causal, **({} if window is None else {"window": window})}
        terms = Terms(float(scale), bias, softcap, dropout)
        if not terms:
            inputs = (q, k, v) if mask is None else (q, k, v, mask)
            return call.emit_all(sdpa, *inputs, **attrs, scale=float(scale))[0]
        heads, mask, bias, alone = plain(call.emit, q, k, [x for x in (mask, bias) if x is not None], attrs)
        if alone:
            mask = both(call.emit, mask, positions(call.emit, q.type.shape[-2], True, 0))
        return heads.apart(composed(call, heads.joined(q), k, v, mask, replace(terms, bias=bias)))


function(SdpaFunction())
