"""The target of a build that a device asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dslc.base.errors import EnvironmentFault

if TYPE_CHECKING:
    from dslc.compiler.options import Options


def target_of(device: str) -> str:
    """The target to build for if none is named; for ``auto``, that of a usable GPU, else ``cpu``. Faults of a device
    that the user named are reported when it is opened."""
    from dslc.runtime.session.open import check_options

    check_options(device=device)
    if device == "cpu":
        return "cpu"
    from dslc.compiler.codegen.targets import ARCHITECTURES
    from dslc.runtime.artifact.targets import choose_target
    from dslc.runtime.cuda import device as devices

    auto = device == "auto"
    try:
        gpu = devices.device(0 if auto else devices.index_of(device))
    except EnvironmentFault:
        if not auto:
            raise
        return "cpu"
    found = choose_target(ARCHITECTURES, gpu.capability)
    return found.target if found is not None else "cpu" if auto else next(iter(ARCHITECTURES))


def for_device(build: Mapping[str, Any], device: str) -> Mapping[str, Any]:
    """The ``build:`` section for a command that runs on ``device``. If that is a GPU and the section names no target,
    its targets are the CPU and this GPU. Raises EnvironmentFault R201 if there is no such GPU."""
    if not device.startswith("gpu") or "target" in build:
        return build
    return {**build, "target": f"cpu,{target_of(device)}"}


def require_target(options: Options, device: str) -> None:
    """Raises EnvironmentFault R202 if a build with these options has no code for ``device``, a GPU."""
    from dslc.runtime.artifact.targets import capability_of

    if device.startswith("gpu") and not any(map(capability_of, options.targets)):
        have, wanted = ",".join(options.targets), target_of(device)
        raise EnvironmentFault(
            "R202",
            f"the build is for {have}, and --device {device} asks for a GPU",
            place="build.target",
            help=f"name both: --target {have},{wanted}, or build: {{target: [{have}, {wanted}]}}",
        )
