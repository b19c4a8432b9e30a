"""The page of the Python interface, from signatures and docstrings of what ``dslc`` exports."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

#: Annotations are texts: ``x: 'int'``.
_ANNOTATION: Final = re.compile(r"(: |-> )'([^']*)'")
_HEAD = """# Python

`import dslc` loads neither numpy nor a GPU library; each name is imported when it is first used. An artifact is also a
package: with `build/` on the path, `import lenet` gives `lenet.predict(image=...)`, which uses the weights next to the
artifact, and `lenet.session(...)`, which is `dslc.load` of that artifact.

```text
import dslc

with dslc.load("build/lenet/lenet.dslc", weights="init") as session:
    for images, labels in batches:
        result = session.train_step(image=images, label=labels)
    session.weights.save("mine.safetensors")
```
"""


def python_page() -> str:
    """docs/python.md: functions, then classes with their public members, then errors."""
    import dslc

    names = [name for name in dslc.__all__ if not name.startswith("__")]
    found = {name: getattr(dslc, name) for name in names}
    errors = [
        name for name, value in found.items() if inspect.isclass(value) and issubclass(value, Warning | Exception)
    ]
    classes = [name for name, value in found.items() if inspect.isclass(value) and name not in errors]
    functions = [name for name in names if name not in errors and name not in classes]
    lines = [_HEAD.rstrip("\n"), "", "## Functions", ""]
    for name in functions:
        lines += _entry(f"dslc.{name}", found[name], "###")
    lines += ["## Classes", ""]
    for name in classes:
        lines += _class(f"dslc.{name}", found[name])
        if name == "Session":
            from dslc.runtime.session.stream import Stream
            from dslc.runtime.weights.mapping import Weights

            lines += _class("session.weights", Weights)
            lines += _class("session.stream()", Stream)
    lines += ["## Errors", "", "All are subclasses of `dslc.DslcError`, except the warning.", "", "| | |", "|---|---|"]
    lines += [f"| `dslc.{name}` | {_first_sentence(found[name])} |" for name in errors]
    return "\n".join(lines) + "\n"


def _class(name: str, value: type[Any]) -> Iterator[str]:
    yield from (f"### {name}", "", _text(value), "")
    for key, member in _members(value):
        yield from _entry(key, member, "####")


def _members(value: type[Any]) -> Iterator[tuple[str, Any]]:
    """The public methods and properties with a docstring, in the order of the source."""
    for key, member in vars(value).items():
        shown = inspect.isfunction(member) or isinstance(member, property)
        if shown and not key.startswith("_") and member.__doc__:
            yield key, member


def _entry(name: str, value: Any, level: str) -> list[str]:
    head = [f"{level} {name.rpartition('.')[2]}", ""]
    if not isinstance(value, property):
        signature = _ANNOTATION.sub(r"\1\2", str(inspect.signature(value)))
        shown = f"{name}{signature}".replace("(self, /, ", "(").replace("(self, ", "(").replace("(self)", "()")
        head += ["```text", *_wrapped(shown), "```", ""]
    return [*head, _text(value), ""]


def _wrapped(shown: str) -> list[str]:
    """A signature on one line, or one argument per line."""
    if len(shown) <= 100 or "(" not in shown:
        return [shown]
    head, _, rest = shown.partition("(")
    arguments, _, result = rest.rpartition(")")
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(arguments):
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and not depth:
            parts.append(arguments[start:at].strip())
            start = at + 1
    parts.append(arguments[start:].strip())
    return [f"{head}(", *(f"    {part}," for part in parts), f"){result}"]


def _first_sentence(value: Any) -> str:
    """The docstring's first sentence on one line, as a cell of a table needs."""
    return " ".join(_text(value).split("\n\n")[0].split()).split(". ")[0].rstrip(".")


def _text(value: Any) -> str:
    """The docstring in Markdown: ``code`` as `code`."""
    return inspect.cleandoc(value.__doc__ or "").replace("``", "`")
