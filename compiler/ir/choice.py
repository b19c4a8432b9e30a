"""How the result of a node is computed if there are several ways: a provider with an algorithm, and measured times.

``dslc tune`` measures the ways, the lock file keeps them, and the passes of a build obey them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import Final

from dslc.base.errors import BuildError
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.text import format_attr, format_type

#: The provider of the compiler's own kernels.
OWN: Final = "own"
#: The providers that a build with NVIDIA's libraries may use, and that one with own kernels only may use.
ALL_PROVIDERS: Final = frozenset({OWN, "cublaslt", "cudnn"})
OWN_KERNELS: Final = frozenset({OWN})
_LONGEST: Final = 160  # characters of a key; longer ones end in a digest of the whole text
_DIGITS: Final = 16  # hexadecimal ones of that digest


@dataclass(frozen=True, slots=True)
class Choice:
    """``provider``: ``own``, or the name of a library. ``algorithm``: of a library, its engine and knobs as text; of an
    own kernel, the name of a variant; empty for the default. ``workspace``: bytes that the algorithm needs."""

    provider: str
    algorithm: str = ""
    workspace: int = 0

    def __str__(self) -> str:
        return f"{self.provider} {self.algorithm}".strip()


@dataclass(frozen=True, slots=True)
class Measured:
    """A choice, and the seconds of one call that it took on the GPU."""

    choice: Choice
    seconds: float


@dataclass(frozen=True, slots=True)
class Choices:
    """The measured ways to compute each problem on one GPU: key -> ways, best first. ``workspace_limit``: only ways
    that need no more bytes may be used; None for no limit. ``digest``: of the text that they came from, or empty."""

    ways: Mapping[str, tuple[Measured, ...]] = field(default_factory=lambda: MappingProxyType({}))
    workspace_limit: int | None = None
    digest: str = ""

    def best(self, key: str, providers: Collection[str]) -> Measured | None:
        """The best way by one of the providers within the limit; None if none was measured."""
        limit = self.workspace_limit
        for way in self.ways.get(key, ()):
            if way.choice.provider in providers and (limit is None or way.choice.workspace <= limit):
                return way
        return None


NO_CHOICES: Final = Choices()


def impossible(node: Node, choice: Choice, why: str) -> BuildError:
    """E0609: the measured choice of a node is none of the ways to compute it."""
    return BuildError(
        "E0609",
        f"`{choice}` does not compute this: {why}",
        place=key_of(node),
        help="measure this problem again with dslc tune, or remove its block from the lock",
    )


def key_of(node: Node) -> str:
    """The problem that a node poses, as one line of text: op, types, which inputs are the same tensor, attributes.

    Equal for nodes that differ in names, places and phases only. The node's sizes must be ints.
    """
    first = {v: i for i, v in reversed([*enumerate(node.inputs)])}  # where a tensor is read first
    inputs = [format_type(v.type) if first[v] == i else f"#{first[v]}" for i, v in enumerate(node.inputs)]
    attrs = " ".join(f"{name}={format_attr(value)}" for name, value in sorted(node.attrs.items()))
    results = " ".join(map(format_type, node.types))
    return _shortened(f"{node.op.name} {' '.join(inputs)} -> {results}{' ' if attrs else ''}{attrs}")


@lru_cache(maxsize=4096)
def _shortened(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - _DIGITS - 2].rstrip()} #{sha256(text.encode()).hexdigest()[:_DIGITS]}"
