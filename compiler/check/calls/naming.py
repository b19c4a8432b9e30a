"""Names of calls: the label, else the callee's name; the second call with a name in one body gets the suffix ``_2``.

A base name belongs to a place in the text, so that every iteration of an unlabelled ``for`` uses the same name.
"""

from __future__ import annotations

from dslc.compiler.check.values import Problem
from dslc.dsl.diagnostics import Label
from dslc.dsl.span import Span
from dslc.dsl.syntax import Tree


class Names:
    """The names in one body (of a block, or of one iteration of a labelled ``for``)."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._of_site: dict[int, str] = {}
        self._taken: dict[str, Span] = {}
        self._unlabelled: set[str] = set()
        self._sites: list[Tree] = []  # keeps the trees alive, so that their ids are not reused

    def base(self, site: Tree, wanted: str, span: Span, *, label: bool) -> str:
        """The base name of a place; E0104 for a label that another place already has."""
        known = self._of_site.get(id(site))
        if known is not None:
            return known
        name = wanted
        if label and name in self._taken:
            if name in self._unlabelled:
                what, help = "is the name of a call without one", "give the first call a label of its own, too"
            else:
                what, help = "is used twice in this body", "labels become parameter names: give each call its own"
            also = (Label(self._taken[name], "first here"),)
            raise Problem("E0104", f"the label `{name}` {what}", span, "again here", also=also, help=help)
        count = 1
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken[name] = span
        if not label:
            self._unlabelled.add(name)
        self._of_site[id(site)] = name
        self._sites.append(site)
        return name

    def __contains__(self, name: str) -> bool:
        """True if a call has this name so far."""
        return name in self._taken

    def path(self, base: str, suffix: str) -> str:
        """The full name; ``suffix`` has ``.I`` for each enclosing unlabelled loop."""
        return f"{self.prefix}.{base}{suffix}" if self.prefix else f"{base}{suffix}"
