"""Prints a graph as text, one line per node, and parses it.

    dim B in 1..512 = 64
    %0 = data image : [B, 1, 28, 28]
    %1 = param c1.weight : [6, 1, 5, 5]
    %2 = conv %0, %1 {dilation=(1, 1), groups=1, pad=(2, 2), stride=(1, 1)} : [B, 6, 28, 28]  # c1 lenet.nn:6:8 forward
    output = %2

Values are numbered in order. After ``#`` come the node's path, its place in the source, and its phase; the place is for
people and is dropped by the parser. Inputs come first, then nodes, results (``output NAME = %n``) and updates
(``update NAME = %n``). The body of a loop (``scan.py``), of joined loops or of a chain (``bodies/``) follows its node,
indented by two spaces. Only bodies recurse, so graphs may have any size and attributes any nesting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from dslc.compiler.ir.bodies.chain import chain
from dslc.compiler.ir.bodies.scans import scans
from dslc.compiler.ir.graph import Attr, Attrs, Body, Graph, Input, Kind, Node, Phase, Value
from dslc.compiler.ir.op import OPS, Op
from dslc.compiler.ir.scan import scan
from dslc.compiler.ir.size_text import AttrReader, MalformedText
from dslc.compiler.ir.sizes import Dim, FloorDiv, Poly
from dslc.compiler.ir.types import DType, TensorType

_PLAIN_NAME: Final = re.compile(r"[^\s\"#]+")
_ATTRS: Final = r"(?: \{((?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\})?"
_NAME: Final = r"(\"(?:[^\"\\]|\\.)*\"|[^\s\"#]+)"
_NODE: Final = re.compile(
    r"((?:%\d+(?:, )?)+) = ([\w.]+)((?: %\d+,?)*)" + _ATTRS + r" : (.*?)  # " + _NAME + r".* (\w+)"
)
_INPUT: Final = re.compile(
    r"%(\d+) = (data|param|buffer|optimizer|state|scalar|constant|prepared) " + _NAME + r" : (.*)"
)
_ROOT: Final = re.compile(r"(output|update) " + _NAME + r" = %(\d+)")
_INDENT: Final = "  "
_BODIES: Final[Mapping[str, Op]] = {op.name: op for op in (scan, scans, chain)}  # ops whose nodes have a body
_DIM: Final = re.compile(r"dim (\w+) in (-?\d+)\.\.(-?\d+) = (-?\d+)")


def format_type(type: TensorType) -> str:
    """``f32[64, 10]``; a float without a precision yet has no dtype: ``[64, 10]``."""
    return str(type)


def format_attr(attr: Attr) -> str:
    """An attribute in the syntax of the parser; strings as in JSON, dtypes and sizes without quotes."""
    parts: list[str] = []
    stack: list[Attr | str] = [attr]
    literal: list[bool] = [False]
    while stack:
        item, is_text = stack.pop(), literal.pop()
        if is_text:
            parts.append(str(item))
        elif isinstance(item, tuple):
            parts.append("(")
            pieces: list[tuple[Attr | str, bool]] = []
            for i, inner in enumerate(item):
                pieces += [(", ", True)] if i else []
                pieces.append((inner, False))
            pieces.append((",)" if len(item) == 1 else ")", True))
            for piece, text in reversed(pieces):
                stack.append(piece)
                literal.append(text)
        elif isinstance(item, str):
            parts.append(json.dumps(item))
        else:
            parts.append(repr(item) if isinstance(item, float) else str(item))
    return "".join(parts)


def format_attrs(attrs: Mapping[str, Attr]) -> str:
    """``{k=3, pad=(1, 1)}`` sorted by name; an empty text for no attributes."""
    if not attrs:
        return ""
    return "{" + ", ".join(f"{k}={format_attr(v)}" for k, v in sorted(attrs.items())) + "}"


def format_node(node: Node, number: Mapping[Value, int]) -> str:
    """One node's line, without the body of a loop; values without a number are printed as ``%?``."""

    def shown(values: tuple[Value, ...]) -> str:
        return ", ".join(f"%{number[v]}" if v in number else "%?" for v in values)

    attrs = format_attrs({k: v for k, v in node.attrs.items() if not isinstance(v, Body)})
    head = f"{shown(node.outputs)} = {node.op.name}"
    if node.inputs:
        head += " " + shown(node.inputs)
    types = ", ".join(format_type(t) for t in node.types)
    place = f" {_one_line(str(node.span))}" if node.span else ""
    return f"{head}{' ' + attrs if attrs else ''} : {types}  # {_name(node.name)}{place} {node.phase.value}"


def numbering(graph: Graph) -> dict[Value, int]:
    """A number for each value: inputs, then nodes in order."""
    number: dict[Value, int] = {}
    for source in graph.inputs:
        number[source.value] = len(number)
    for node in graph.nodes:
        for value in node.outputs:
            number[value] = len(number)
    return number


def format_graph(graph: Graph) -> str:
    """The whole graph; ends with a newline. The body of a loop follows its node, indented."""
    lines = [f"dim {d.name} in {d.low}..{d.high} = {d.default}" for d in _dims(graph)]
    return "\n".join([*lines, *_lines(graph)]) + "\n"


def _lines(graph: Graph) -> list[str]:
    """The lines of a graph without its dims. Recurses into bodies, whose nesting the parser of the language bounds."""
    number = numbering(graph)
    lines = []
    for source in graph.inputs:
        lines.append(
            f"%{number[source.value]} = {source.kind.value} {_name(source.name)} : {format_type(source.value.type)}"
        )
    for node in graph.nodes:
        lines.append(format_node(node, number))
        if node.op in _BODIES.values():
            [body] = (attr for attr in node.attrs.values() if isinstance(attr, Body))
            lines += [_INDENT + line for line in _lines(body.graph)]
    lines += [f"output {_name(name)} = %{number[v]}" for name, v in graph.outputs.items()]
    lines += [f"update {_name(i.name)} = %{number[v]}" for i, v in graph.updates]
    return lines


def parse_graph(text: str) -> Graph:
    """The graph that ``format_graph`` printed, without places in the source.

    Raises MalformedText (a ValueError) with the line's number for malformed text or an unregistered op. Types are taken
    as written; ``verify_graph`` checks them.
    """
    return _parsed(list(enumerate(text.splitlines(), 1)), AttrReader())


def _parsed(lines: list[tuple[int, str]], reader: AttrReader) -> Graph:
    """The graph of these numbered lines."""
    parser, rest = _Parser(reader), list(reversed(lines))
    while rest:
        at, line = rest.pop()
        try:
            if match := _DIM.fullmatch(line):
                name, *numbers = match.groups()
                reader.dims[name] = Dim(name, *map(int, numbers))
            elif match := _INPUT.fullmatch(line):
                parser.add_input(*match.groups())
            elif match := _ROOT.fullmatch(line):
                parser.add_root(*match.groups())
            elif match := _NODE.fullmatch(line):
                parser.add_node(rest, *match.groups())
            elif line.strip():
                raise MalformedText("not a dim, input, node, output or update")
        except (KeyError, ValueError) as error:
            raise MalformedText(f"line {at}: {error!s} in: {line[:120]}") from error
    return Graph(tuple(parser.inputs.values()), tuple(parser.nodes), parser.outputs, tuple(parser.updates))


class _Parser:
    """The parts of a graph, line by line; ``values``: those so far, by their numbers."""

    def __init__(self, reader: AttrReader) -> None:
        self.reader = reader
        self.inputs: dict[str, Input] = {}
        self.nodes: list[Node] = []
        self.outputs: dict[str, Value] = {}
        self.updates: list[tuple[Input, Value]] = []
        self.values: dict[int, Value] = {}
        self._types: dict[str, tuple[TensorType, ...]] = {}

    def add_input(self, number: str, kind: str, name: str, types: str) -> None:
        (type_,) = self._read_types(types)
        source = Input(_unquoted(name), Kind(kind), type_)
        self.inputs[source.name] = source
        self.values[int(number)] = source.value

    def add_root(self, what: str, name: str, number: str) -> None:
        """Adds an output or an update."""
        if what == "output":
            self.outputs[_unquoted(name)] = self.values[int(number)]
        else:
            self.updates.append((self.inputs[_unquoted(name)], self.values[int(number)]))

    def add_node(
        self, rest: list[tuple[int, str]],
        left: str, op: str, right: str, attrs: str | None, types: str, name: str, phase: str,
    ) -> None:  # fmt: skip
        """Adds a node. ``rest``: the lines after it, last one first, of which a node with a body takes the body's."""
        read = tuple(self.values[int(n)] for n in re.findall(r"\d+", right))
        given: Attrs = self.reader.attrs(attrs or "")
        if op in _BODIES:
            given = {**given, "body" if op == chain.name else "loop": self._body(rest)}
        made = _BODIES[op] if op in _BODIES else OPS[op]
        node = Node(made, read, self._read_types(types), given, name=_unquoted(name), phase=Phase(phase))
        numbers = re.findall(r"\d+", left)
        if len(numbers) != len(node.outputs):
            raise MalformedText(f"{len(numbers)} values, {len(node.outputs)} types")
        self.values.update((int(n), v) for n, v in zip(numbers, node.outputs))
        self.nodes.append(node)

    def _body(self, rest: list[tuple[int, str]]) -> Body:
        lines: list[tuple[int, str]] = []
        while rest and rest[-1][1].startswith(_INDENT):
            number, line = rest.pop()
            lines.append((number, line.removeprefix(_INDENT)))
        return Body(_parsed(lines, self.reader))

    def _read_types(self, text: str) -> tuple[TensorType, ...]:
        if text not in self._types:
            self._types[text] = _read_types(text, self.reader)
        return self._types[text]


def _read_types(raw: str, reader: AttrReader) -> tuple[TensorType, ...]:
    found = []
    position = 0
    for match in re.finditer(r"(\w*)\[([^\]]*)\](?:, )?", raw):
        if match.start() != position:
            break
        position = match.end()
        shape = reader.value(f"({match[2]},)" if match[2] else "()")
        if not isinstance(shape, tuple) or not all(isinstance(s, int | Poly) for s in shape):
            raise MalformedText(f"not a shape: {match[2]}")
        found.append(TensorType(DType(match[1] or "float"), shape))  # type: ignore[arg-type]
    if position != len(raw) or not found:
        raise MalformedText(f"not a type: {raw}")
    return tuple(found)


def _dims(graph: Graph) -> list[Dim]:
    """Every dim of the graph, by name. Uses a stack because attributes and sizes may nest."""
    found: set[Dim] = set()
    seen: set[Poly] = set()
    stack: list[Attr] = [Body(graph)]
    while stack:
        item = stack.pop()
        if isinstance(item, Body):
            stack += [s for i in item.graph.inputs for s in i.value.type.shape if isinstance(s, Poly)]
            for node in item.graph.nodes:
                stack += [s for t in node.types for s in t.shape if isinstance(s, Poly)]
                stack += [a for a in node.attrs.values() if isinstance(a, Poly | tuple | Body)]
        elif isinstance(item, tuple):
            stack += [a for a in item if isinstance(a, Poly | tuple)]
        elif isinstance(item, Poly) and item not in seen:
            seen.add(item)
            for atoms, _ in item.terms:
                for atom in atoms:
                    if isinstance(atom, FloorDiv):
                        stack.append(atom.value)
                    else:
                        found.add(atom)
    return sorted(found, key=lambda d: d.name)


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)


def _unquoted(name: str) -> str:
    return str(json.loads(name)) if name.startswith('"') else name


def _one_line(place: str) -> str:
    return " ".join(place.split())
