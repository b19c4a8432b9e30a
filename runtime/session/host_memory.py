"""Host memory: the free amount, the check whether a session fits, and blocks with the alignment of plans.

The needed memory is compared with the free memory before the first allocation, so that a session which does not fit
fails with numbers and allocates nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import OutOfMemory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ALIGNMENT: Final = 64  # bytes; offsets in a plan are multiples of it, so its blocks must start at a multiple, too
_LARGEST: Final = 5

_MEMINFO: Final = Path("/proc/meminfo")
_CGROUP_V2: Final = Path("/sys/fs/cgroup")
_CGROUP_V1: Final = Path("/sys/fs/cgroup/memory")


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None  # no such control group on this machine
    return int(text) if text.isdecimal() else None  # "max": no limit


def _cgroup_free() -> int | None:
    """Bytes left in this process's control group, including page cache that can be dropped; None without a limit."""
    for folder, limit_name, used_name, stat_key in (
        (_CGROUP_V2, "memory.max", "memory.current", "inactive_file"),
        (_CGROUP_V1, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, used = _number(folder / limit_name), _number(folder / used_name)
        if limit is None or used is None:
            continue
        try:
            stat = dict(line.split() for line in (folder / "memory.stat").read_text("ascii").splitlines())
        except OSError:
            stat = {}
        return max(0, limit - used + int(stat.get(stat_key, 0)))
    return None


def available_bytes() -> int | None:
    """Bytes of host memory that can be allocated now (the machine's and the control group's); None if unknown."""
    found = []
    try:
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    except OSError:
        pass  # not Linux, or no /proc: the machine's free memory is unknown
    group = _cgroup_free()
    if group is not None:
        found.append(group)
    return min(found, default=None)


def size_text(count: int) -> str:
    """A byte count as text: ``1.5 GiB``."""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def out_of_memory(need: int, free: int | None, buffers: Sequence[tuple[str, int]]) -> OutOfMemory:
    """The error for a need of ``need`` bytes with ``free`` left; names the largest of ``buffers``, (name, bytes)."""
    largest = sorted(buffers, key=lambda b: (-b[1], b[0]))[:_LARGEST]
    have = f"{size_text(free)} are free" if free is not None else "the system refused them"
    listed = ", ".join(f"{name} {size_text(size)}" for name, size in largest)
    return OutOfMemory(
        "R401",
        f"the session needs {size_text(need)} and {have}" + (f"; the largest buffers are {listed}" if listed else ""),
        help="build with a smaller batch (--size), load with fewer contexts, or free memory",
    )


def ensure_free(need: int, buffers: Sequence[tuple[str, int]]) -> None:
    """Raise OutOfMemory (R401) unless ``need`` bytes are free. Allocates nothing."""
    free = available_bytes()
    if need > sys.maxsize or (free is not None and need > free):
        raise out_of_memory(need, free, buffers)


def block(size: int) -> NDArray[np.uint8]:
    """``size`` zeroed bytes whose address is a multiple of 64. u8[size]. MemoryError if the system refuses."""
    import numpy as np

    raw: NDArray[Any] = np.zeros(size + ALIGNMENT, dtype=np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]
