"""How to call the functions of linear algebra, as ``rules.py``, on matrices that are near the identity."""

from __future__ import annotations

from fuzzing.programs import Var, Writer
from fuzzing.rules import rule

_NAMES = ("cholesky", "triangular_solve", "solve", "inverse", "det", "slogdet")


@rule(*_NAMES)
def _of_matrices(w: Writer) -> None:
    name = w.rng.choice(_NAMES)
    x = w.tame(w.pick(lambda v: isinstance(v.shape[-1], int), (1, 2)), 1)
    n = x.shape[-1]
    y = x if name in ("cholesky", "triangular_solve") else w.tame(w.like(x.shape), 1)
    shape = (*x.shape, n)
    matrix = f"unsqueeze({x.name}, -1) * unsqueeze({y.name}, -2) / {2 * int(n)} + eye({n})"
    a = w.write("unsqueeze", matrix, [x, y], shape, bound=2, also=("eye",))
    if name in ("cholesky", "inverse"):
        w.write(name, f"{name}({a.name})", [a], shape, bound=3)
    elif name == "det":
        w.write(name, f"det({a.name})", [a], x.shape[:-1], bound=2)
    elif name == "slogdet":
        w.write(name, f"slogdet({a.name})", [a], x.shape[:-1], x.shape[:-1], bound=1)
    elif name == "solve":
        b = _right(w, x, shape)
        w.write(name, f"solve({a.name}, {b.name})", [a, b], b.shape, bound=3 * b.bound)
    else:
        b = _right(w, x, shape)
        more = w.rng.choice(["", ", upper=true", ", transpose=true", ", upper=true, transpose=true", ", unit=true"])
        w.write(name, f"triangular_solve({a.name}, {b.name}{more})", [a, b], b.shape, bound=3 * b.bound)


def _right(w: Writer, x: Var, shape: tuple[int | str, ...]) -> Var:
    """A vector for each matrix, or a matrix."""
    return w.tame(w.like(x.shape if w.rng.random() < 0.6 else shape), 5)
