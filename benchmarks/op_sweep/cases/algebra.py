"""Systems of linear equations, each of a matrix that is far from singular."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from op_sweep.case import Case, Tensor

if TYPE_CHECKING:
    from op_sweep.case import Sizes

_DTYPES: Final = ("f32", "f64")  # PyTorch's kernels have no others


def cases(sizes: Sizes) -> Iterator[Case]:
    e, q = sizes.elements, sizes.quadratic
    shapes = {
        "huge": (e // 4096, 64), "tiny": (2, 3), "odd": (e // 2048 | 1, 23), "small": (e // 512, 8), "one": (1, q // 2)
    }  # fmt: skip
    for shape, (count, n) in shapes.items():
        x, square = {"x": Tensor((count, n, n), "unit")}, f"x @ transpose(x) + {n} * eye({n})"
        right = {**x, "y": Tensor((count, n, 3))}
        plain = f"a = x + {n} * eye({n})"

        def definite(t: Any, x: Any, n: int = n) -> Any:
            return x @ x.mT + n * t.eye(n, dtype=x.dtype, device=x.device)

        def regular(t: Any, x: Any, n: int = n) -> Any:
            return x + n * t.eye(n, dtype=x.dtype, device=x.device)

        yield Case("cholesky", shape, x, f"cholesky({square})",
                   lambda t, x, d=definite: t.linalg.cholesky(d(t, x)), ("x",), dtypes=_DTYPES)  # fmt: skip
        yield Case("triangular_solve", shape, right, "triangular_solve(a, y)",
                   lambda t, x, y, r=regular: t.linalg.solve_triangular(r(t, x), y, upper=False),
                   ("x", "y"), before=plain, dtypes=_DTYPES)  # fmt: skip
        yield Case("solve", shape, right, "solve(a, y)", lambda t, x, y, r=regular: t.linalg.solve(r(t, x), y),
                   ("x", "y"), before=plain, dtypes=_DTYPES)  # fmt: skip
        yield Case("inverse", shape, x, "inverse(a)", lambda t, x, r=regular: t.linalg.inv(r(t, x)), ("x",),
                   before=plain, dtypes=_DTYPES)  # fmt: skip
        yield Case("slogdet", shape, x, "slogdet(a)", lambda t, x, r=regular: t.linalg.slogdet(r(t, x)), ("x",),
                   ("1", "1"), before=plain, dtypes=_DTYPES)  # fmt: skip
        if n < 32:  # of larger ones it overflows
            yield Case("det", shape, x, "det(a)", lambda t, x, r=regular: t.linalg.det(r(t, x)), ("x",), ("1",),
                       before=plain, dtypes=_DTYPES)  # fmt: skip
