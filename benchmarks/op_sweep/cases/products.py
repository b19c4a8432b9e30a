"""Matrix products, attention, and transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

    def scaled(number: int) -> int:
        return max(1, number * q // 1024)

    def parts(y: Any) -> Any:
        return y.real.contiguous(), y.imag.contiguous()

    shapes = {
        "huge": (sizes.elements // 8 // q, q), "tiny": (2, 8), "odd": (33, q // 2 | 1),
        "of 2 and 409": (scaled(1281), scaled(818)), "of 8 and 83": (scaled(789), scaled(664)),
        "of 17 and 89": (8, scaled(1513)), "of 2 and 5": (scaled(1000), scaled(1000)), "long": (64, 4 * q),
        "longer": (3, 64 * q), "one": (1, q // 4), "one long": (1, q * q),
    }  # fmt: skip
    floats = ("f32", "f64")
    for shape, (rows, n) in shapes.items():
        yield Case("dft", shape, {"x": Tensor((rows, n))}, "dft(x, onesided=true)", lambda t, x: parts(t.fft.rfft(x)),
                   ("x",), ("2", "2"), dtypes=floats)  # fmt: skip
    two = {name: Tensor((4 * q, q)) for name in ("x", "y")}

    def along(axis: int) -> Callable[..., Any]:
        return lambda t, x, y: parts(t.fft.fft(t.complex(x, y), dim=axis))

    for shape, axis in {"complex": 1, "first axis": 0}.items():
        yield Case("dft", shape, two, f"dft(x, y, axis={axis})", along(axis), ("x", "y"), ("2", "2"), dtypes=floats)
    image = {name: Tensor((q // 2, q // 2)) for name in ("x", "y")}
    yield Case("dft", "image", image, "dft(re, im, axis=0)", lambda t, x, y: parts(t.fft.fft2(t.complex(x, y))),
               ("x", "y"), ("2", "2"), before="re, im = dft(x, y)", dtypes=floats)  # fmt: skip
    half = {name: Tensor((4 * q, q // 2 + 1)) for name in ("x", "y")}
    yield Case("dft", "inverse", half, "dft(x, y, inverse=true, onesided=true)",
               lambda t, x, y: t.fft.irfft(t.complex(x, y)), ("x", "y"), dtypes=floats)  # fmt: skip
