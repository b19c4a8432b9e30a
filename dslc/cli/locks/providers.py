"""Decides what ``--providers auto`` means for a GPU: NVIDIA's libraries next to own kernels, or own kernels alone.

The project's lock decides, if it holds measurements for the targets: a lock with a way of a library allows libraries,
any other allows none. So a lock gives the same build on each machine. Without one, libraries are allowed if all of them
are installed on this machine. With libraries the compiler still chooses for each node: libraries reach 0.9 of the rate
of matrix products, own kernels 0.45 (``codegen/device_model.py``), so a library computes what it can, except the
problems that own kernels compute faster (``codegen/cuda/libraries``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from dslc.base.errors import EnvironmentFault
from dslc.base.version import install_extra

if TYPE_CHECKING:
    from dslc.compiler.lock.model import Lock
    from dslc.compiler.options import Options


def decided(options: Options, targets: Collection[str], lock: Lock | None) -> Options:
    """The options with ``vendor`` in the place of ``auto`` if libraries are allowed. ``targets``: the GPUs among those
    of the options; ``lock``: the project's, None without one."""
    from dslc.compiler.ir.choice import OWN

    if options.provider != "auto" or not targets:
        return options
    measured = [block for block in (lock.blocks if lock is not None else ()) if block.target in targets]
    if measured or options.locked:
        allowed = any(way.choice.provider != OWN for block in measured for way in block.ways)
    else:
        allowed = installed()
    return replace(options, provider="vendor") if allowed else options


def installed() -> bool:
    """Whether all of NVIDIA's libraries can be loaded here. It needs no GPU."""
    from dslc.runtime.cuda.libraries.registry import LIBRARIES

    try:
        for library in LIBRARIES.values():
            library().installed()
    except EnvironmentFault:
        return False
    return True


def needs_line(calls: Collection[str], options: Options) -> list[str]:
    """What an artifact for a GPU needs where it runs, as at most one line. ``calls``: the libraries that it calls;
    ``options``: those of its build, ``decided``."""
    from dslc.cli.locks.find import gpu_targets
    from dslc.runtime.cuda.libraries.library import EXTRA
    from dslc.runtime.cuda.libraries.registry import LIBRARIES

    if calls:
        names = " and ".join(library().title for name, library in LIBRARIES.items() if name in calls)
        return [f"the artifact needs {names} where it runs: {install_extra(EXTRA)}; --providers own needs no library"]
    measured = any(each.lock.blocks for each in options.tuned.values())
    if options.provider == "auto" and gpu_targets(options) and not measured:
        return [f"own kernels alone, because NVIDIA's libraries are not installed here: {install_extra(EXTRA)}"]
    return []
