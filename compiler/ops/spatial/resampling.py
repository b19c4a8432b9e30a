"""How one axis of n pixels is resampled to m: which pixels make a result pixel, and by how much, exactly in integers.

The position of result pixel i among the source's pixels is ``(a*i + c)/d``. Its weights come from a filter around it:

- "nearest" and "nearest-exact": the pixel at the position, rounded down;
- "linear": the triangle ``1 - |u|``;
- "cubic": Keys 1981, with -0.75 as PyTorch has it, and with -0.5 as Pillow has it where the filter is widened.

Coordinates are those of PyTorch: pixels are areas, pixel i of n has its centre at (i + 0.5)/n, or with ``corners`` the
centres of the first and of the last pixels coincide. A ``widened`` filter covers at least a result pixel (antialias).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.ops.attrs import flag_attr, int_tuple
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

#: Filters beyond which everything is 0, in pixels.
RADIUS: Final = {"linear": 1, "cubic": 2}


@dataclass(frozen=True)
class Resampling:
    """``n`` pixels to ``m``, where a result pixel is ``num/den`` source pixels wide."""

    n: int
    m: int
    mode: str
    num: int
    den: int
    corners: bool = False
    widened: bool = False

    @property
    def position(self) -> tuple[int, int, int]:
        """a, c and d of the position ``(a*i + c)/d``."""
        if self.mode == "nearest" or (self.corners and not self.widened):
            return self.num, 0, self.den
        if self.mode == "nearest-exact":
            return 2 * self.num, self.num, 2 * self.den
        return 2 * self.num, self.num - self.den, 2 * self.den

    @property
    def unchanged(self) -> bool:
        """Each result pixel is the source's pixel: an axis whose size stays, whatever the ratio."""
        return self.n == self.m

    @property
    def filtered(self) -> bool:
        """Whether the weights are those of a filter around the position, not of the pixel below it and the next."""
        return self.mode == "cubic" or self.widened

    @property
    def unit(self) -> int:
        """The filter's unit of length, times d."""
        return 2 * max(self.num, self.den) if self.widened else self.position[2]

    @property
    def radius(self) -> int:
        """The filter's radius, times d."""
        return RADIUS[self.mode] * self.unit

    @property
    def steps(self) -> int:
        """The most source pixels that make a result pixel."""
        if self.unchanged or self.mode.startswith("nearest"):
            return 1
        return -(-2 * self.radius // self.position[2]) if self.filtered else 2

    @property
    def sharpness(self) -> float:
        """The parameter of the cubic filter."""
        return -0.5 if self.widened else -0.75

    def taps(self, inner: Any) -> Iterator[tuple[Array, Array | None]]:
        """For each of ``steps``: the index of a source pixel for every result pixel, and its weight (None: 1). Indices
        ascend. A plain filter takes the border for pixels outside; a widened one gives them the weight 0."""
        a, c, d = self.position
        at = a * np.arange(self.m) + c
        if self.mode.startswith("nearest"):
            yield at // d, None
        elif not self.filtered:
            at = np.maximum(at, 0)
            low = at // d
            weight = ((at - low * d) / d).astype(inner)
            yield low, 1 - weight
            yield np.minimum(low + 1, self.n - 1), weight
        else:
            first = (at - self.radius) // d + 1
            for step in range(self.steps):
                pixel = first + step
                index = np.clip(pixel, 0, self.n - 1)
                weight = self._filter(np.abs(at - d * pixel) / self.unit)
                yield index, (np.where(index == pixel, weight, 0) if self.widened else weight).astype(inner)

    def _filter(self, u: Array) -> Array:
        """The weight at distance u."""
        if self.mode == "linear":
            return np.asarray(np.maximum(1 - u, 0))
        near, far = self.cubic(u)
        return np.where(u < 1, near, np.where(u < 2, far, 0))

    def cubic(self, u: Any) -> tuple[Any, Any]:
        """The cubic filter at a distance u below 1, and from 1 to 2: of numbers, arrays or expressions."""
        k = self.sharpness
        return ((k + 2) * u - (k + 3)) * u * u + 1, ((k * u - 5 * k) * u + 8 * k) * u - 4 * k


def resamplings(attrs: Mapping[str, Any], before: tuple[int, ...], after: tuple[int, ...]) -> list[Resampling]:
    """Of each spatial axis. Attributes: ``mode``; ``corners`` and ``widened`` (false if missing); ``ratio``, num and
    den of each axis, if they do not follow from the sizes."""
    corners, widened = flag_attr(attrs, "corners"), flag_attr(attrs, "widened")
    given = int_tuple(attrs, "ratio") if "ratio" in attrs else ()
    found = []
    for axis, (n, m) in enumerate(zip(before, after)):
        num, den = n, m
        if given:
            num, den = given[2 * axis], given[2 * axis + 1]
        elif corners and n != m:
            num, den = (n - 1, m - 1) if m > 1 else (0, 1)
        found.append(Resampling(n, m, str(attrs["mode"]), num, den, corners, widened))
    return found
