"""Examines this machine for ``dslc doctor``: what is installed, and what dslc can do with it."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from dslc.base.errors import DslcError
from dslc.base.version import has_compiler, install_extra
from dslc.cli.output import size_text
from dslc.runtime.cuda.libraries.library import EXTRA
from dslc.runtime.cuda.libraries.registry import LIBRARIES

Answers = Mapping[str, Mapping[str, Any]]

#: The packages that generate code for GPUs.
_COMPILERS: Final = (
    "numba", "numba-cuda", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-nvvm", "nvidia-nvjitlink"
)  # fmt: skip
_INSTALL_COMPILERS: Final = "pip install 'dslc[cuda]'"
_NO_DRIVER: Final = "install NVIDIA's driver, 580 or newer, and check `nvidia-smi`; in a container: --gpus all"


@dataclass(frozen=True)
class Fact:
    """A component of the machine; ``value`` is None if it is missing. ``where``: the file or folder of the
    component."""

    section: str
    name: str
    value: str | None
    where: str | None = None


@dataclass(frozen=True)
class Ability:
    """A capability of dslc. If it does not work here: ``why``, and ``help``, the line that fixes it.

    ``name`` describes it; ``asked``: the command line requires it."""

    name: str
    why: str | None = None
    help: str | None = None
    asked: bool = False


@dataclass(frozen=True)
class Demands:
    """Requirements of the command line: targets to build for, vendor libraries, a GPU to run on."""

    targets: tuple[str, ...] = ()
    vendor: bool = False
    gpu: int | None = None


def examine(ask: Callable[[str], Mapping[str, Any]], demands: Demands) -> tuple[list[Fact], list[Ability]]:
    """Examine this machine. ``ask`` answers the questions of ``probes``; they run concurrently."""
    from dslc.cli.doctor.probes import PROBES

    with ThreadPoolExecutor(len(PROBES)) as pool:
        answers = dict(zip(PROBES, pool.map(ask, PROBES)))
    cpu = _cpu_level()
    compilers = _compilers() if has_compiler() else []
    facts = [*_basics(cpu), *compilers, *_gpus(answers), *_libraries(answers), *_cache()]
    return facts, _abilities(cpu, answers, demands)


def _basics(cpu: tuple[str | None, str | None]) -> list[Fact]:
    import numpy as np

    from dslc import __version__

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    processors = len(os.sched_getaffinity(0))
    return [
        Fact("dslc", "dslc", __version__, os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
        Fact("dslc", "Python", platform.python_version()),
        Fact("dslc", "numpy", np.__version__),
        Fact("dslc", "BLAS", f"{blas['name']} {blas['version']}"),
        *([Fact("dslc", "llvmlite", _installed("llvmlite"))] if has_compiler() else []),
        Fact("dslc", "CPU", cpu[0] and f"{cpu[0]}, {processors} processors"),
    ]


def _cpu_level() -> tuple[str | None, str | None]:
    """The code level that this CPU runs, or why it runs none."""
    from dslc.runtime.cpu.levels import LEVELS, machine_level

    try:
        return machine_level(LEVELS), None
    except DslcError as error:
        return None, error.message


def _compilers() -> list[Fact]:
    return [Fact("compilers for GPUs", name, _installed(name)) for name in _COMPILERS]


def _gpus(answers: Answers) -> list[Fact]:
    found = answers["gpus"]
    cuda = f"CUDA {found['cuda'] // 1000}.{found['cuda'] % 1000 // 10}" if "cuda" in found else None
    facts = [
        Fact("GPUs", "cuda-bindings", _installed("cuda-bindings")),
        Fact("GPUs", "driver", cuda, found.get("libcuda")),
    ]
    for gpu in found.get("gpus", ()):
        target = "sm_" + "".join(map(str, gpu["capability"]))
        facts.append(Fact("GPUs", f"gpu:{gpu['index']}", f"{gpu['name']}, {target}, {size_text(gpu['bytes'])}"))
    return facts


def _libraries(answers: Answers) -> list[Fact]:
    section, facts = "vendor's libraries", []
    for name, library in LIBRARIES.items():
        found = answers[name]
        facts.append(Fact(section, library().title, found.get("version"), found.get("where")))
        for package in library().packages:
            facts.append(Fact(section, package, found.get("packages", {}).get(package) or _installed(package)))
    return facts


def _cache() -> list[Fact]:
    from dslc.base.cache import Cache

    cache = Cache.open()  # warns if it rejects the folder
    if cache.folder is None:
        return [Fact("cache", "compiled kernels", None)]
    try:
        entries = cache.entries()
    except OSError as error:
        return [Fact("cache", "compiled kernels", None, f"{cache.folder}: {error.strerror}")]
    held = f"{len(entries)} entries, {size_text(sum(e.bytes for e in entries))} of {size_text(cache.limit)}"
    return [Fact("cache", "compiled kernels", held, str(cache.folder))]


def _abilities(cpu: tuple[str | None, str | None], answers: Answers, demands: Demands) -> list[Ability]:
    _, no_level = cpu
    by_numpy = "build with --providers reference, which runs through numpy" if no_level else None
    on_cpu = "build and run for the CPU" if has_compiler() else "run on the CPU"
    found = [Ability(on_cpu, no_level, by_numpy, "cpu" in demands.targets)]
    if has_compiler():
        found.append(_building(answers, demands))
    running = _running(answers, demands.gpu or 0)
    found.append(Ability("run on a GPU", *running, demands.gpu is not None))
    found.append(Ability("run --providers vendor on a GPU", *_calling(answers, running), demands.vendor))
    if not has_compiler():
        found.append(Ability("build models", "the compiler is not installed", "pip install dslc"))
    return found


def _building(answers: Answers, demands: Demands) -> Ability:
    from dslc.compiler.codegen.targets import ARCHITECTURES

    asked = [target for target in demands.targets if target != "cpu"]
    return Ability(f"build for GPUs ({', '.join(asked or ARCHITECTURES)})", *_compiling(answers), bool(asked))


def _compiling(answers: Answers) -> tuple[str | None, str | None]:
    """Why GPU code cannot be compiled, and the line that fixes it."""
    if "error" not in answers["compile"]:
        return None, None
    missing = [name for name in _COMPILERS if _installed(name) is None]
    if missing:
        return f"{', '.join(missing)} {'are' if len(missing) > 1 else 'is'} not installed", _INSTALL_COMPILERS
    return str(answers["compile"]["error"]), f"{_INSTALL_COMPILERS} --force-reinstall"


def _running(answers: Answers, index: int) -> tuple[str | None, str | None]:
    found = answers["gpus"]
    if "error" in found:
        missing = _installed("cuda-bindings") is None
        return str(found["error"]), 'pip install "cuda-bindings>=13,<14"' if missing else _NO_DRIVER
    count = len(found["gpus"])
    if index < count:
        return None, None
    hidden = "CUDA_VISIBLE_DEVICES" in os.environ
    why = f"there is no GPU {index}: there are {count}" if count else "the driver shows no GPU"
    return why, "unset CUDA_VISIBLE_DEVICES" if hidden else _NO_DRIVER


def _calling(answers: Answers, running: tuple[str | None, str | None]) -> tuple[str | None, str | None]:
    for name in LIBRARIES:
        if "error" in answers[name]:
            return str(answers[name]["error"]), install_extra(EXTRA)
    return running


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
