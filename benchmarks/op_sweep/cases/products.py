"""Matrix products, attention, and transforms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from op_sweep.case import Case, Tensor, ids

if TYPE_CHECKING:
    from op_sweep.case import Sizes


def cases(sizes: Sizes) -> Iterator[Case]:
    n = sizes.products
    shapes = {
        "huge": (n, n, n), "tiny": (3, 4, 5), "odd": (n // 2 | 1, n // 4 | 1, n // 2 | 1), "one": (1, n, n),
        "tall": (16 * n, 32, 32), "wide": (32, 32, 16 * n), "deep": (32, 16 * n, 32), "few columns": (16 * n, 64, 3),
    }  # fmt: skip
    for shape, (m, k, p) in shapes.items():
        two = {"x": Tensor((m, k)), "y": Tensor((k, p))}
        yield Case("matmul", shape, two, "matmul(x, y)", lambda t, x, y: x @ y, ("x", "y"))
        three = {"x": Tensor((m, k)), "linear.weight": Tensor((p, k)), "linear.bias": Tensor((p,))}
        yield Case("linear", shape, three, f"linear(x, {p})", lambda t, x, w, b: t.nn.functional.linear(x, w, b),
                   (*three,))  # fmt: skip
    two = {"x": Tensor((n, n)), "y": Tensor((n, n))}
    yield Case("matmul", "huge", two, "matmul(transpose(x), transpose(y))", lambda t, x, y: x.T @ y.T, ("x", "y"),
               layout="columns")  # fmt: skip
    for shape, (b, m, k) in {"batch": (64, n // 8, 64), "small batch": (max(4, n), 8, 8)}.items():
        two = {"x": Tensor((b, m, k)), "y": Tensor((b, k, m))}
        yield Case("matmul", shape, two, "matmul(x, y)", lambda t, x, y: x @ y, ("x", "y"))
        pair = {"x": Tensor((b, m, k)), "y": Tensor((b, m, k))}
        yield Case("einsum", shape, pair, 'einsum("bij,bkj->bik", x, y)',
                   lambda t, x, y: t.einsum("bij,bkj->bik", x, y), ("x", "y"))  # fmt: skip
    three = {"x": Tensor((n, 16)), "y": Tensor((n, 32)), "z": Tensor((16, 32))}
    yield Case("einsum", "three", three, 'einsum("bi,bj,ij->b", x, y, z)',
               lambda t, x, y, z: t.einsum("bi,bj,ij->b", x, y, z), ("x", "y", "z"), ("1",))  # fmt: skip
    yield from _attention(sizes)
    yield from _transforms(sizes)


def _attention(sizes: Sizes) -> Iterator[Case]:
    q = sizes.quadratic

    def case(shape: str, b: int, h: int, tq: int, tk: int, d: int, ours: str = "", **more: Any) -> Case:
        groups = more.pop("heads", h)
        given = {"q": Tensor((b, h, tq, d)), "k": Tensor((b, groups, tk, d)), "v": Tensor((b, groups, tk, d))}
        mask = {"mask": Tensor((b, 1, tq, tk), "below", "b1", 8)} if shape == "mask" else {}

        def theirs(t: Any, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
            return t.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, enable_gqa=groups != h, **more)  # fmt: skip

        return Case("sdpa", shape, {**given, **mask}, f"sdpa(q, k, v{ours})", theirs, ("q", "k", "v"))

    yield case("huge", 4, 8, q, q, 64)
    yield case("tiny", 1, 2, 4, 4, 8)
    yield case("causal", 4, 8, q, q, 64, ", causal=true", is_causal=True)
    yield case("odd", 2, 3, q // 2 | 1, q // 2 | 1, 40)
    yield case("one query", 8, 8, 1, q, 64)
    yield case("cross", 2, 4, q // 4, q, 64)
    yield case("groups", 2, 8, q // 2, q // 2, 64, heads=2)
    yield case("wide heads", 2, 4, q // 2, q // 2, 256)
    yield case("narrow heads", 2, 16, q // 2, q // 2, 16)
    yield case("mask", 2, 4, q // 2, q // 2, 64, ", mask=mask")
    given = {"q": Tensor((2, 4, q, 64)), "k": Tensor((2, 4, q, 64)), "v": Tensor((2, 4, q, 64)), "n": ids((2,), q)}

    def lengths(t: Any, q: Any, k: Any, v: Any, n: Any) -> Any:
        seen = (t.arange(k.shape[2], device=n.device) < (n + 1)[:, None])[:, None, None]
        return t.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)

    yield Case("sdpa", "lengths", given, "sdpa(q, k, v, lengths=n + 1)", lengths, ("q", "k", "v"))


def _transforms(sizes: Sizes) -> Iterator[Case]:
    q = sizes.quadratic
    for shape, (rows, n) in {"huge": (sizes.elements // 8 // q, q), "tiny": (2, 8), "odd": (33, q // 2 | 1)}.items():
        x = {"x": Tensor((rows, n))}

        def theirs(t: Any, x: Any) -> Any:
            y = t.fft.rfft(x)
            return y.real.contiguous(), y.imag.contiguous()

        yield Case("dft", shape, x, "dft(x, onesided=true)", theirs, ("x",), ("2", "2"), dtypes=("f32", "f64"))
