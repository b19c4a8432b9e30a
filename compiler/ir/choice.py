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
from dslc.compiler.ir.graph import Attrs, Body, Node
from dslc.compiler.ir.text import format_attr, format_graph, format_type
from dslc.compiler.ir.types import TensorType

#: The provider of the compiler's own kernels.
OWN: Final = "own"
#: The providers that a build with the vendor's libraries may use, and that one with own kernels only may use. The lock
#: names ways by them.
ALL_PROVIDERS: Final = (OWN, "cublaslt", "cudnn")
OWN_KERNELS: Final = (OWN,)
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

    def seconds(self, node: Node, providers: Collection[str]) -> float | None:
        """The measured time of a node by its best way; None if none was measured."""
        way = self.best(key_of(node), providers)
        return None if way is None else way.seconds

    def best(self, key: str, providers: Collection[str]) -> Measured | None:
        """The best way by one of the providers within the limit; None if none was measured."""
        limit = self.workspace_limit
        for way in self.ways.get(key, ()):
            if way.choice.provider in providers and (limit is None or way.choice.workspace <= limit):
                return way
        return None


NO_CHOICES: Final = Choices()


def providers_of(vendor: bool) -> Collection[str]:
    """The providers whose ways a build may take; ``vendor``: it may call libraries."""
    return ALL_PROVIDERS if vendor else OWN_KERNELS


def impossible(node: Node, choice: Choice, why: str) -> BuildError:
    """E0609: the measured choice of a node is none of the ways to compute it."""
    return BuildError(
        "E0609",
        f"`{choice}` does not compute this: {why}",
        place=key_of(node),
        help="measure this problem again with `dslc tune`, or remove its block from the lock",
    )


def key_of(node: Node) -> str:
    """The problem that a node poses, as one line of text: op, types, which inputs are the same tensor, attributes.

    Equal for nodes that differ in names, places and phases only. The node's sizes must be ints.
    """
    first = {v: i for i, v in reversed([*enumerate(node.inputs)])}  # where a tensor is read first
    inputs = tuple([v.type if first[v] == i else first[v] for i, v in enumerate(node.inputs)])
    attrs = {name: _body_text(value) if isinstance(value, Body) else value for name, value in node.attrs.items()}
    return _key(node.op.name, inputs, node.types, _Attrs(repr(sorted(attrs.items())), attrs))


def _body_text(body: Body) -> str:
    """A loop's body without names and places."""
    return "; ".join(line.partition("  # ")[0].strip() for line in format_graph(body.graph).splitlines())


@dataclass(frozen=True, slots=True)
class _Attrs:
    """Attributes compared by their text: values that Python calls equal, e.g. 0.0 and -0.0, pose other problems."""

    text: str
    attrs: Attrs = field(compare=False)


@lru_cache(maxsize=4096)
def _key(op: str, inputs: tuple[TensorType | int, ...], results: tuple[TensorType, ...], attrs: _Attrs) -> str:
    """``inputs``: types, or the number of the operand that is the same tensor. Most nodes of a model repeat another."""
    read = " ".join(f"#{each}" if isinstance(each, int) else format_type(each) for each in inputs)
    said = "".join(f" {name}={format_attr(value)}" for name, value in sorted(attrs.attrs.items()))
    text = f"{op} {read} -> {' '.join(map(format_type, results))}{said}"
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - _DIGITS - 2].rstrip()} #{sha256(text.encode()).hexdigest()[:_DIGITS]}"
