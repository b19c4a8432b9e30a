"""The position of the checker: the local names of one body, its path, and the attributes in force."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dslc.compiler.check.calls.naming import Names
from dslc.compiler.check.scope import ModuleScope
from dslc.compiler.check.values import Groups, Static
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.sizes import Size
from dslc.dsl.syntax import Param


@dataclass(eq=False)
class Frame:
    """One instance of a body. ``names`` returns parameter paths; ``node_prefix`` differs from its prefix in the second
    and later calls of a shared layer. ``suffix`` has ``.I`` for each enclosing unlabelled loop."""

    scope: ModuleScope
    names: Names
    node_prefix: str
    locals: dict[str, Static] = field(default_factory=dict)
    dims: dict[str, Size] = field(default_factory=dict)
    #: the sizes of `...` in the signature of a block
    rest: tuple[Size, ...] | None = None
    #: the definition of a name: (text, line), shown with shapes in errors
    origins: dict[str, tuple[str, int]] = field(default_factory=dict)
    #: arguments as declared in the signature, until their names are reassigned
    params: dict[str, Param] = field(default_factory=dict)
    #: the states and buffers that the body has declared: name -> path
    states: dict[str, str] = field(default_factory=dict)
    #: in a train section, the names of the model's body, which it does not see
    unseen: dict[str, Static] = field(default_factory=dict)
    #: in a train section, which sees the parameters of the model by their names
    sees_parameters: bool = False
    suffix: str = ""
    title: str = ""
    file_dims: bool = False
    groups: Groups = field(default_factory=Groups)
    #: in the body of a `scan`, what its step has yielded so far: nothing, or one list, or None if that failed
    yields: list[list[Value] | None] | None = None

    def inner(self, *, names: Names | None = None, node_prefix: str | None = None, suffix: str | None = None) -> Frame:
        """The frame of an iteration of a loop: it shares the local names with the enclosing body."""
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
        """The text after the place of an error."""
        if not self.title:
            return None
        return f"in {self.title} at {self.node_prefix}" if self.node_prefix else f"in {self.title}"
