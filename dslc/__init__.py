"""dslc: neural networks as text, compiled ahead of time.

``dslc.load(path)`` gives a Session. Each name is imported at its first use, so ``import dslc`` loads neither numpy nor
a GPU library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dslc.base.version import VERSION as __version__

if TYPE_CHECKING:
    from dslc.base.errors import (
        ArtifactError,
        BuildError,
        DataError,
        DeviceLostError,
        DslcError,
        DslcWarning,
        EnvironmentFault,
        ForkError,
        InputError,
        NumericError,
        OutOfMemory,
        ResourceError,
        WeightsMissing,
    )
    from dslc.face import load
    from dslc.runtime.cuda.device import devices, memory_info
    from dslc.runtime.session.results import EvalResult, StepResult
    from dslc.runtime.session.session import Session

_HOME: Final = {
    "load": "dslc.face",
    "Session": "dslc.runtime.session.session",
    "StepResult": "dslc.runtime.session.results",
    "devices": "dslc.runtime.cuda.device",
    "memory_info": "dslc.runtime.cuda.device",
    "EvalResult": "dslc.runtime.session.results",
    **dict.fromkeys(
        (
            "ArtifactError", "BuildError", "DataError", "DeviceLostError", "DslcError", "DslcWarning",
            "EnvironmentFault", "ForkError", "InputError", "NumericError", "OutOfMemory", "ResourceError",
            "WeightsMissing",
        ),
        "dslc.base.errors",
    ),
}  # fmt: skip

__all__ = [
    "ArtifactError",
    "BuildError",
    "DataError",
    "DeviceLostError",
    "DslcError",
    "DslcWarning",
    "EnvironmentFault",
    "EvalResult",
    "ForkError",
    "InputError",
    "NumericError",
    "OutOfMemory",
    "ResourceError",
    "Session",
    "StepResult",
    "WeightsMissing",
    "__version__",
    "devices",
    "load",
    "memory_info",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'dslc' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value  # cached: the next access does not call __getattr__
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | _HOME.keys())
