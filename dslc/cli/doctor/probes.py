"""Questions that ``dslc doctor`` asks in separate processes: a library that ends its process or hangs affects only its
probe.

``python -m dslc.cli.doctor.probes NAME`` prints one JSON object: the findings, or ``error`` and ``help``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from dslc.base.ended import ended, last_words
from dslc.base.errors import DslcError
from dslc.runtime.cuda.libraries.registry import LIBRARIES

_PATIENCE: Final = 60.0  # seconds
_KERNEL: Final = 'extern "C" __global__ void k(float* x) { x[0] = 1.0f; }'


def compile_for_gpus() -> dict[str, Any]:
    """Compiles a kernel for sm_90 with each of the compilers, as a build does."""
    from numba.cuda import types
    from numba.cuda.compiler import compile as compile_function

    from dslc.compiler.toolchain.nvjitlink import cubin_of
    from dslc.compiler.toolchain.nvrtc import compile_cuda

    def kernel(x: Any) -> None:
        x[0] = 1.0

    signature = types.void(types.CPointer(types.float32))
    text, _ = compile_function(kernel, signature, cc=(9, 0), device=False, abi="numba", output="ptx")
    made = {"numba": cubin_of(text.encode(), "sm_90"), "nvrtc": compile_cuda(_KERNEL, "sm_90")[1]}
    return {name: len(cubin) for name, cubin in made.items()}


def gpus() -> dict[str, Any]:
    """The driver and each GPU. Creates no context, so it takes no GPU memory from other processes."""
    from dslc.runtime.cuda import device as devices

    driver = devices.driver()
    found = []
    for index in range(driver.device_count()):
        handle = driver.device(index)
        major, minor = driver.capability(handle)
        found.append(
            {
                "index": index,
                "name": driver.device_name(handle),
                "capability": [major, minor],
                "bytes": driver.total_memory(handle),
            }
        )
    return {"cuda": driver.version(), "libcuda": _mapped("libcuda.so"), "gpus": found}


def library(name: str) -> dict[str, Any]:
    """The version and path of a vendor's library, and the versions of the packages through which it is called."""
    found = LIBRARIES[name]().installed()
    return {"version": found.version, "where": _mapped(found.file), "packages": dict(found.packages)}


PROBES: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {
    "compile": compile_for_gpus,
    "gpus": gpus,
    **{name: partial(library, name) for name in LIBRARIES},
}


def _mapped(name: str) -> str | None:
    """The path of the loaded library with this name."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = (line.split(maxsplit=5)[-1].strip() for line in maps if "/" in line)
        return next((path for path in paths if os.path.basename(path).startswith(name)), None)


def answer(name: str) -> dict[str, Any]:
    """The findings of a probe, or ``error`` and ``help``."""
    try:
        return PROBES[name]()
    except DslcError as error:
        return {"error": error.message, "help": error.help}
    except Exception as error:  # noqa: BLE001 - whatever a library raises is the answer
        return {"error": f"{type(error).__name__}: {error}".split("\n")[0][:300], "help": None}


def ask(name: str, timeout: float = _PATIENCE) -> dict[str, Any]:
    """``answer`` from another process; an error, too, if the process dies or exceeds ``timeout`` seconds."""
    command = [sys.executable, "-P", "-W", "ignore", "-m", "dslc.cli.doctor.probes", name]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"error": f"the library did not return within {timeout:g} s", "help": None}
    try:
        found = json.loads(ran.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        said = last_words(ran.stderr)
        return {"error": f"the library's process has ended: {ended(ran.returncode)}" + (f": {said}" if said else ""),
                "help": None}  # fmt: skip
    assert isinstance(found, dict)
    return found


if __name__ == "__main__":
    print(json.dumps(answer(sys.argv[1])))
