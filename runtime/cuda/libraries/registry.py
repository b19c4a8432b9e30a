"""The registry of vendor libraries: the one place of the runtime that knows their names.

A new library is a file next to this one, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from dslc.runtime.cuda.libraries.library import Library


def _cublaslt() -> type[Library[Any]]:
    from dslc.runtime.cuda.libraries.cublaslt import CublasLt

    return CublasLt


def _cudnn() -> type[Library[Any]]:
    from dslc.runtime.cuda.libraries.cudnn import Cudnn

    return Cudnn


#: The provider of an instruction -> its library's class, imported only then.
LIBRARIES: Final[Mapping[str, Callable[[], type[Library[Any]]]]] = MappingProxyType(
    {"cublaslt": _cublaslt, "cudnn": _cudnn}
)
