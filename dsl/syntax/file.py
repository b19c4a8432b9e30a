"""A file and its declarations: `use`, constants, dims, blocks and sections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dslc.dsl.syntax.expressions import Attr, Expr, Range
from dslc.dsl.syntax.statements import Stmt
from dslc.dsl.syntax.tree import Tree
from dslc.dsl.syntax.types import Param, Result

#: What the path of a `use` begins with that names the ops of an installed package; the checker finds these.
PACKAGE: Final = "entry:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Tree):
    """A declaration at the top level of a file."""

    attrs: tuple[Attr, ...] = ()
    doc: str | None = None


@dataclass(frozen=True, slots=True)
class Use(Item):
    """``use a.b (x, y)``, ``use "a/b.nn"`` or ``use "a/b.npy" (x)``; ``names`` empty means all."""

    path: str
    names: tuple[str, ...] = ()

    @property
    def is_table(self) -> bool:
        """True for a file of numbers."""
        return self.path.endswith(".npy")

    @property
    def table_name(self) -> str:
        """The name of the tensor of a file of numbers: the written one, or that of the file, which may be no name."""
        return self.names[0] if self.names else self.path.rpartition("/")[2].removesuffix(".npy")


@dataclass(frozen=True, slots=True)
class Const(Item):
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class DimDecl(Item):
    """``dim name in low..high = default``; ``dim T = 35`` is fixed."""

    name: str
    bounds: Range | None
    default: Expr | None


@dataclass(frozen=True, slots=True)
class Block(Item):
    """``block`` or ``model``."""

    kind: str
    name: str
    params: tuple[Param, ...]
    results: tuple[Result, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Entry(Tree):
    """In a section: ``targets = value`` (one target, or a tuple of names), or a group ``name label { entries }``."""

    targets: tuple[str, ...]
    value: Expr | None = None
    entries: tuple[Entry, ...] | None = None
    doc: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Section(Item):
    """``precision { ... }``, ``budget { ... }``, ``mesh { ... }``, ``train Model(inputs) { ... }``."""

    kind: str
    target: str | None
    params: tuple[Param, ...]
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class File(Tree):
    """A source file of an edition; ``doc`` comes from the `##` lines above ``nn 1``."""

    edition: int
    items: tuple[Item, ...]
    doc: str | None = None
