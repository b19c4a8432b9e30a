"""Functions that draw at random; both sides draw in each call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from op_sweep.case import Case, Tensor

if TYPE_CHECKING:
    from op_sweep.case import Sizes


def cases(sizes: Sizes) -> Iterator[Case]:
    flat, images = sizes.flat(), sizes.images()
    for shape in ("huge", "tiny", "odd"):
        rows, columns = flat[shape]
        x, two = {"x": Tensor((rows, columns))}, ("x",)
        yield Case("dropout", shape, x, "dropout(x, 0.25)", lambda t, x: t.nn.functional.dropout(x, 0.25), two,
                   compared=False)  # fmt: skip
        yield Case("alpha_dropout", shape, x, "alpha_dropout(x, 0.25)",
                   lambda t, x: t.nn.functional.alpha_dropout(x, 0.25, True), two, compared=False)  # fmt: skip
        yield Case("gumbel_softmax", shape, x, "gumbel_softmax(x, hard=true)",
                   lambda t, x: t.nn.functional.gumbel_softmax(x, hard=True), two, compared=False)  # fmt: skip
        yield Case("rrelu", shape, x, "rrelu(x)", lambda t, x: t.nn.functional.rrelu(x, training=True), two,
                   compared=False)  # fmt: skip
        yield Case("stochastic_depth", shape, x, "stochastic_depth(x, 0.25)",
                   lambda t, x: x * (t.empty_like(x[:, :1]).bernoulli_(0.75) / 0.75), two, compared=False)  # fmt: skip
        p = {"p": Tensor((rows, columns), "chance")}
        yield Case("bernoulli", shape, p, "bernoulli(p)", lambda t, p: t.bernoulli(p), compared=False)
        yield Case("rand", shape, x, f"x + rand([{rows}, {columns}])", lambda t, x: x + t.rand_like(x), compared=False)
        yield Case("randn", shape, x, f"x + randn([{rows}, {columns}])", lambda t, x: x + t.randn_like(x),
                   compared=False)  # fmt: skip
    for shape in ("huge", "tiny", "odd"):
        b, c, h, w = images[shape]
        x = {"x": Tensor((b, c, h, w))}
        yield Case("dropout2d", shape, x, "dropout2d(x, 0.25)", lambda t, x: t.nn.functional.dropout2d(x, 0.25),
                   ("x",), compared=False)  # fmt: skip
        volume = {"x": Tensor((b, c, 2, h // 2, w))}
        yield Case("dropout3d", shape, volume, "dropout3d(x, 0.25)", lambda t, x: t.nn.functional.dropout3d(x, 0.25),
                   ("x",), compared=False)  # fmt: skip
