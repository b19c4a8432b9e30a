"""The manual pages of the language's functions, optimizers and initialisers, generated from their tables. Used by
``dslc ops`` and docs/ops.md."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dslc.compiler.ir.function import Function

_TYPES: Final = {
    "Value": "tensor",
    "list[Value]": "list of tensors",
    "Operand": "tensor or number",
    "Number": "number or size",
    "Numbers": "number, or list of numbers or of lists",
    "Shape": "list of sizes",
    "Size": "size",
    "Axis": "axis",
    "Axes": "axes",
    "Init": "initialiser",
    "Floats": "number or list of numbers",
    "Ints": "int or list of ints",
}


@dataclass(frozen=True)
class Argument:
    """``default`` is None if the argument is required; ``named``: it must be passed by name."""

    name: str
    type: str
    default: str | None
    named: bool


@dataclass(frozen=True)
class Page:
    """``kind``: function, optimizer or initialiser. ``doc``: the text after the summary. ``example`` uses the names in
    ``given``."""

    name: str
    kind: str
    summary: str
    doc: str
    given: str | None
    example: str | None
    arguments: tuple[Argument, ...]

    def text(self) -> str:
        lines = [f"{self.name}: {self.summary}", ""]
        if self.arguments:
            width = max(len(a.name) for a in self.arguments)
            for a in self.arguments:
                default = "" if a.default is None else f" = {a.default}"
                lines.append(f"  {a.name.ljust(width)}  {a.type}{default}{'  (by name)' if a.named else ''}")
            lines.append("")
        if self.doc:
            lines += [self.doc, ""]
        if self.example:
            lines += [f"for {self.given}:" if self.given else "example:", *_indented(self.example), ""]
        return "\n".join(lines).rstrip("\n")

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "summary": self.summary,
            "doc": self.doc,
            "given": self.given,
            "example": self.example,
            "arguments": [
                {"name": a.name, "type": a.type, "default": a.default, "by_name": a.named} for a in self.arguments
            ],
        }


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]


def every_page() -> dict[str, Page]:
    """All pages by name, functions first, each group in alphabetical order."""
    from dslc.compiler.check.training.optimizer import COMMON
    from dslc.compiler.ops.random.init import INITIALISERS
    from dslc.compiler.ops.registry import functions, optimizers

    pages = pages_of(functions())
    for name, optimizer in sorted(optimizers().items()):
        arguments = tuple(
            Argument(key, _kind(value), None if value is None and key not in COMMON else _shown(value), True)
            for key, value in {**optimizer.defaults, **COMMON, **optimizer.defaults}.items()
        )
        pages[name] = _page(name, "optimizer", inspect.getdoc(optimizer) or "", arguments)
    for name, known in sorted(INITIALISERS.items()):
        if name not in pages:  # `zeros` and `ones` are functions too
            taken = dict.fromkeys(argument for form in known.forms for argument in form)
            arguments = tuple(_of_initialiser(argument, known.defaults.get(argument)) for argument in taken)
            pages[name] = _page(name, "initialiser", known.page, arguments)
    return pages


def _of_initialiser(name: str, default: float | None) -> Argument:
    from dslc.compiler.ops.random.init import MODES

    if name == "mode":
        return Argument(name, "str", next(f'"{mode}"' for mode, number in MODES.items() if number == default), True)
    return Argument(name, "number", None if default is None else f"{default:g}", False)


def pages_of(functions: Mapping[str, Function]) -> dict[str, Page]:
    """The pages of functions by name, in alphabetical order."""
    return {
        name: _page(name, "function", inspect.getdoc(function) or "", _arguments(function.parameters))
        for name, function in sorted(functions.items())
    }


def _page(name: str, kind: str, doc: str, arguments: tuple[Argument, ...]) -> Page:
    """Parses a docstring: ``name(...): summary``, text, ``given: ...``, ``>>> example``."""
    head, _, rest = doc.partition("\n\n")
    summary = " ".join(head.split())
    summary = summary.partition(": ")[2] or summary
    kept: list[str] = []
    given: str | None = None
    example: list[str] = []
    for line in rest.splitlines():
        if line.startswith("given:"):
            given = line.removeprefix("given:").strip()
        elif line.startswith(">>>") or (example and line.startswith("...")):
            example.append(line[4:])
        else:
            kept.append(line)
    return Page(name, kind, summary, "\n".join(kept).strip(), given, "\n".join(example) or None, arguments)


def _arguments(parameters: list[inspect.Parameter]) -> tuple[Argument, ...]:
    found = []
    for parameter in parameters:
        many = parameter.kind is inspect.Parameter.VAR_KEYWORD
        default = None if parameter.default is inspect.Parameter.empty else _shown(parameter.default)
        named = many or parameter.kind is inspect.Parameter.KEYWORD_ONLY
        name = "NAME=..." if many else parameter.name
        found.append(Argument(name, _type(str(parameter.annotation)), default, named))
    return tuple(found)


def _type(annotation: str) -> str:
    parts = [part.strip() for part in annotation.split("|")]
    return " or ".join(_TYPES.get(part, part) for part in parts if part != "None")


def _kind(value: object) -> str:
    if value == ():
        return "text or list of texts"
    if isinstance(value, tuple | list):
        return "list of numbers"
    return {"NoneType": "number", "bool": "bool", "str": "str"}.get(type(value).__name__, "number")


def _shown(value: object) -> str:
    """A default value in the syntax of the language."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(_shown, value)) + ")"
    return str(value)
