"""A case of the sweep: a call of a function on tensors, as a model of ours and as PyTorch's call. Needs no package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

FORWARD: Final = "forward"
GRADIENT: Final = "gradient"  # the results and the gradients of all of `wrt`
FLOATS: Final = ("f32", "f64", "bf16", "f16")


@dataclass(frozen=True)
class Tensor:
    """An input. ``kind`` of floats: ``normal``, ``positive`` (0.1 to 2), ``unit`` (-0.9 to 0.9), ``chance`` (0.05 to
    0.95), ``above`` (1.1 to 3), ``sign`` (-1 or 1), ``between`` whole numbers, ``whole``
    ones, ``boxes`` in an image of side ``high``. Of integers: ``below``, from 0 to ``high`` (not included), or
    ``apart``, different numbers below ``high`` along the last axis."""

    shape: tuple[int, ...]
    kind: str = "normal"
    dtype: str = "float"
    high: int = 2

    @property
    def written(self) -> str:
        """The type in the language."""
        return f"{'' if self.dtype == 'float' else self.dtype}{list(self.shape)}"


def ids(shape: Sequence[int], high: int, kind: str = "below") -> Tensor:
    """Integers for an index."""
    return Tensor(tuple(shape), kind, "i32", high)


@dataclass(frozen=True)
class Case:
    """``ours`` is an expression of the language over ``inputs``; ``theirs(t, *tensors)`` the same with ``t`` the module
    torch. An input with a point in its name is a parameter that the expression makes, such as ``linear.weight``.

    ``wrt``: the inputs whose gradients are computed. ``out``: the results, each a rank, after a dtype unless it is
    float: ``2``, ``i32 1``. ``before``: statements before the expression. ``dtypes``: only these, of the floats.
    ``compared``: False for results that are random, or that PyTorch defines otherwise. ``exact``: what the results are
    compared with where PyTorch's own call is wrong."""

    function: str
    shape: str
    inputs: Mapping[str, Tensor]
    ours: str
    theirs: Callable[..., Any]
    wrt: tuple[str, ...] = ()
    out: tuple[str, ...] = ()
    layout: str = "rows"
    before: str = ""
    dtypes: tuple[str, ...] = FLOATS
    compared: bool = True
    exact: Callable[..., Any] | None = None

    @property
    def source(self) -> str:
        """The model."""
        names = [f"y{i}" for i in range(len(self.results))]
        inputs = ", ".join(f"{name}: {x.written}" for name, x in self.inputs.items() if "." not in name)
        results = ", ".join(f"{name}: {text}" for name, text in zip(names, self.results))
        lines = [*self.before.splitlines(), f"{', '.join(names)} = {self.ours}", f"return {', '.join(names)}"]
        return f"nn 1\nmodel Case({inputs}) -> ({results}) {{\n" + "".join(f"  {x}\n" for x in lines) + "}\n"

    @property
    def results(self) -> list[str]:
        """The results' types in the language."""
        out = self.out or (str(len(next(iter(self.inputs.values())).shape)),)
        found = []
        for each in out:
            *dtype, rank = each.split()
            found.append("".join(dtype) + f"[{', '.join('_' * int(rank))}]")
        return found

    @property
    def has_floats(self) -> bool:
        """Whether the build's precision changes the case."""
        return any(x.dtype == "float" for x in self.inputs.values())


@dataclass(frozen=True)
class Run:
    """A case in a dtype and a direction; ``quick``: part of the short sweep."""

    case: Case
    dtype: str
    direction: str
    quick: bool

    @property
    def name(self) -> str:
        """The key of the run's row."""
        return f"{self.case.function} {self.case.shape} {self.case.layout} {self.dtype} {self.direction}"

    @property
    def file(self) -> str:
        """The name of a file for it."""
        return self.name.replace(" ", "_").replace("/", "-")


@dataclass(frozen=True)
class Sizes:
    """The scale of the shapes. ``elements``: of a huge tensor; ``side`` and ``channels``: of its images; ``products``:
    the side of a large matrix product; ``quadratic``: the length of what takes quadratic time."""

    elements: int
    side: int
    channels: int
    products: int
    quadratic: int

    def flat(self) -> dict[str, tuple[int, int]]:
        """Shapes of pointwise work."""
        e, odd = self.elements, int((self.elements / 8) ** 0.5) | 1
        return {
            "huge": (e // 1024, 1024), "tiny": (3, 5), "odd": (odd, odd + 2), "one": (1, e // 8),
            "tall": (e // 32, 4), "wide": (4, e // 32),
        }  # fmt: skip

    def lines(self) -> dict[str, tuple[tuple[int, ...], int]]:
        """Shapes and the axis of work along lines."""
        e, odd = self.elements, int((self.elements / 8) ** 0.5) | 1
        middle = max(2, int((e / 64) ** 0.5))
        return {
            "huge": ((e // 1024, 1024), 1), "tiny": ((3, 5), 1), "odd": ((odd, odd + 2), 1), "one": ((1, e // 8), 1),
            "tall": ((e // 32, 4), 1), "wide": ((4, e // 32), 1), "first axis": ((e // 1024, 1024), 0),
            "middle axis": ((8, middle, max(2, e // 8 // middle)), 1),
        }  # fmt: skip

    def images(self) -> dict[str, tuple[int, int, int, int]]:
        """Batch, channels, height, width."""
        c, s, small = self.channels, self.side, max(2, self.side // 8)
        batch = max(1, self.elements // (c * s * s))
        return {
            "huge": (batch, c, s, s), "tiny": (2, 4, 6, 6), "odd": (3, c // 2 | 1, s // 2 | 1, (s // 2 | 1) + 2),
            "one": (1, 2 * c, s // 2, s // 2), "many channels": (max(1, batch // 2), 8 * c, small, small),
        }  # fmt: skip


SIZES: Final = {
    "gpu": Sizes(1 << 25, 56, 64, 4096, 1024),
    "cpu": Sizes(1 << 22, 56, 64, 1024, 512),
    "test": Sizes(1 << 12, 8, 8, 32, 16),
}


def runs(cases: Sequence[Case], dtypes: Sequence[str]) -> Iterator[Run]:
    """The cases in each dtype, forward and with gradients; the short sweep takes two shapes of each function in the
    first dtype, with gradients if it has them."""
    seen: dict[str, int] = {}
    for case in cases:
        seen[case.function] = seen.get(case.function, 0) + 1
        wanted = [d for d in dtypes if d in case.dtypes] if case.has_floats else dtypes[:1]
        for dtype in wanted:
            for direction in (FORWARD, GRADIENT) if case.wrt else (FORWARD,):
                last = direction == GRADIENT or not case.wrt
                # the second dtype and small tensors tell little: the large ones show its code
                if dtype != wanted[0] and prod(next(iter(case.inputs.values())).shape) < 4096:
                    continue
                yield Run(case, dtype, direction, last and seen[case.function] <= 2 and dtype == wanted[0])
