"""Windows over the spatial axes of ``[batch, channels, *space]``: shared by convolutions and pools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Size, bounds, floor_div, to_reach
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def per_axis(name: str, given: Sequence[int], axes: int, least: int) -> tuple[int, ...]:
    """One int for each of ``axes`` spatial axes, from one for all or one each. Raises Mismatch."""
    if len(given) not in (1, axes):
        raise Mismatch(f"`{name}` has {len(given)} numbers for {axes} spatial axes", f"give one, or {axes}", "E0209")
    if min(given) < least:
        raise Mismatch(f"`{name}` is {min(given)}", f"`{name}` must be at least {least}", "E0209")
    return tuple(given) if len(given) == axes else tuple(given) * axes


def spatial_axes(op: str, x: TensorType) -> int:
    """The number of spatial axes of ``[batch, channels, *space]``, at least one. Raises Mismatch."""
    if x.rank < 3:
        raise Mismatch(f"`{op}` slides over [batch, channels, height, width], got {x}", "`reshape` to rank 4")
    return x.rank - 2


def window_count(op: str, size: Size, k: int, stride: int, pad: int, dilation: int, axis: int) -> Size:
    """The number of windows along an axis: ``(size + 2*pad - dilation*(k - 1) - 1) // stride + 1``.

    Raises Mismatch E0308 if some value of the dims leaves no window.
    """
    reach = dilation * (k - 1) + 1
    count = floor_div(size + 2 * pad - reach, stride) + 1
    if bounds(count)[0] < 1:
        padded = f"{size} + 2*{pad}" if pad else str(size)
        least = bounds(size)[0]
        may_be = "" if isinstance(size, int) else f", where `{size}` may be {least}"
        declared = to_reach(size, reach - 2 * pad)
        help = f"a smaller window, or `pad={pad + (reach - least - 2 * pad + 1) // 2}`"
        raise Mismatch(
            f"`{op}` has no output: its window covers {reach} along axis {axis}, the input has {padded}{may_be}",
            help if declared is None else f"raise the lower bound of the dim: `{declared}`; or {help}",
            "E0308",
        )
    return count


def check_pad(op: str, k: Sequence[int], pad: Sequence[int], dilation: Sequence[int]) -> None:
    """Raises Mismatch if padding is over half of what a window covers along an axis."""
    for wide, edge, gap in zip(k, pad, dilation):
        reach = gap * (wide - 1) + 1
        if 2 * edge > reach:
            raise Mismatch(f"`pad` of `{op}` is over half of its window", f"`pad={reach // 2}` or less", "E0209")


def padded(x: Array, pad: Sequence[int], fill: float) -> Array:
    """``x`` with ``pad`` elements of ``fill`` on both sides of each of its last axes."""
    if not any(pad):
        return x
    whole = x.shape[: x.ndim - len(pad)]
    out = np.full(whole + tuple(n + 2 * p for n, p in zip(x.shape[len(whole) :], pad)), fill, x.dtype)
    out[spatial(inside(x.shape[len(whole) :], pad))] = x
    return out


def inside(size: Sequence[int], pad: Sequence[int]) -> tuple[slice, ...]:
    """The slices of the unpadded tensor in the padded one."""
    return tuple(slice(p, p + n) for n, p in zip(size, pad))


def spatial(where: tuple[slice, ...]) -> Any:
    """The index that selects ``where`` on the last axes and everything on the others."""
    return (..., *where)


def per_channel(tap: tuple[int, ...]) -> Any:
    """The index that selects ``tap`` on all axes after the first."""
    return (slice(None), *tap)


def taps(
    k: Sequence[int], stride: Sequence[int], dilation: Sequence[int], count: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Each position of a window in row-major order, with the slices of the padded tensor that it covers."""
    for tap in product(*(range(n) for n in k)):
        yield (
            tap,
            tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilation, count, stride)),
        )
