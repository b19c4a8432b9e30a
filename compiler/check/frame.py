"""Where the checker stands: the local names of one body, its path, and the attributes in force."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dslc.compiler.check.naming import Names
from dslc.compiler.check.scope import ModuleScope
from dslc.compiler.check.values import Groups, Static
from dslc.compiler.ir.sizes import Size
from dslc.dsl.syntax import Param


@dataclass(eq=False)
class Frame:
    """One instance of a body. ``names`` gives parameter paths; ``node_prefix`` differs from its prefix in the second
    and later calls of a shared layer. ``suffix`` is ``.I`` of the unlabelled loops around."""

    scope: ModuleScope
    names: Names
    node_prefix: str
    locals: dict[str, Static] = field(default_factory=dict)
    dims: dict[str, Size] = field(default_factory=dict)
    #: how a name came to its value: (text, line), shown with shapes in errors
    origins: dict[str, tuple[str, int]] = field(default_factory=dict)
    #: arguments as the signature declares them, while their names still mean them
    params: dict[str, Param] = field(default_factory=dict)
    suffix: str = ""
    title: str = ""
    file_dims: bool = False
    groups: Groups = field(default_factory=Groups)

    def inner(self, *, names: Names | None = None, node_prefix: str | None = None, suffix: str | None = None) -> Frame:
        """A round of a loop: it shares the local names with the body around."""
        return replace(
            self,
            names=self.names if names is None else names,
            node_prefix=self.node_prefix if node_prefix is None else node_prefix,
            suffix=self.suffix if suffix is None else suffix,
        )

    def node_path(self, base: str) -> str:
        name = base + self.suffix
        return f"{self.node_prefix}.{name}" if self.node_prefix else name

    @property
    def context(self) -> str | None:
        """What stands behind the place of an error."""
        if not self.title:
            return None
        return f"in {self.title} at {self.node_prefix}" if self.node_prefix else f"in {self.title}"
