"""The history of a part of a model: its nodes after each pass, and finally their addresses and kernels.

A part is a path (``c1``; ``stage.1`` includes everything below it) or a source line (``lenet.nn:7``). A node that
passes combined from several places counts for each of them.
"""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any, Final

from dslc.base.errors import BuildError
from dslc.compiler.ir.build import Precision
from dslc.compiler.ir.graph import Node, Origin
from dslc.compiler.ir.program import Program
from dslc.compiler.report.facts import Facts, line_of, what
from dslc.compiler.report.kernels import kernel_texts
from dslc.compiler.report.reasons import Wanted, nodes_of, origins_of, reasons
from dslc.compiler.report.slow import Slow

_NAMES: Final = 6  # names listed for a combined node
_TYPES: Final = 4  # types listed for a node's results
_NEAR: Final = 3  # similar names that are suggested
_LISTED: Final = 12


@dataclass(frozen=True)
class Change:
    """The effect of a pass on the part: the nodes that it removed and those that it added, as text."""

    name: str
    gone: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True)
class Ending:
    """A node of the finished program. ``places``: for each output its address, as ``work+0``, and the steps in which it
    is in use; ``runs``: the kernels, or the library or numpy. ``flops``, ``bytes`` and ``seconds`` are 0 for a view."""

    node: str
    name: str
    phase: str
    step: int
    stream: int
    places: tuple[str, ...]
    runs: tuple[str, ...]
    flops: int
    bytes: int
    seconds: float
    bound: str
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True)
class History:
    """The whole history of a part. ``inputs``: its parameters and other inputs, and their addresses; ``reasons``: which
    of its lines are slow, what passes did not do to its nodes, whether libraries compute them, and why."""

    inputs: tuple[str, ...]
    changes: tuple[Change, ...]
    endings: tuple[Ending, ...]
    reasons: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def wanted(text: str, programs: Iterable[Program]) -> Wanted:
    """The predicate for the origins that ``text`` denotes. BuildError E0102 if no program has any."""
    origins: dict[Origin, None] = {}
    for program in programs:
        for node in program.graph.nodes:
            origins.update(dict.fromkeys(origins_of(node)))
        origins.update(((i.name, i.span), None) for i in program.graph.inputs)
    file, _, number = text.rpartition(":")
    if file and number.isdecimal():
        return _on_line(text, file, int(number[:9]), origins)

    def below(origin: Origin) -> bool:
        return origin[0] == text or origin[0].startswith(f"{text}.")

    if not any(map(below, origins)):
        names = {name.rsplit(".", i)[0] for name, _ in origins for i in range(name.count(".") + 1)}
        raise BuildError("E0102", f"the model has no node `{text}`", place=text, help=_near(text, names))
    return below


def _near(text: str, names: Iterable[str]) -> str:
    """A line that suggests a name: paths that contain the text, similar names, or all top-level names."""
    known = sorted(name for name in names if name)
    close = sorted((n for n in known if f".{n}.".find(f".{text}.") > 0), key=lambda n: (len(n), n))[:_NEAR]
    close = close or get_close_matches(text[:64], known, n=_NEAR, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(f"`{name}`" for name in close) + "?"
    tops = list(dict.fromkeys(name.partition(".")[0] for name in known))
    return f"there are {', '.join(tops[:_LISTED])}" + (", ..." if len(tops) > _LISTED else "")


def _on_line(text: str, file: str, number: int, origins: Iterable[Origin]) -> Wanted:
    def stands(origin: Origin) -> bool:
        span = origin[1]
        if span is None or span.line != number:
            return False
        path = span.source.path
        return file in (path, os.path.basename(path))

    spans = [span for _, span in origins if span is not None]
    if not any(map(stands, origins)):
        lines = {(os.path.basename(s.source.path), s.line) for s in spans}
        own = {line for line in lines if line[0] == os.path.basename(file)} or lines
        nearest = min(own, key=lambda line: (abs(line[1] - number), line))
        help = f"the nearest line of the model is {nearest[0]}:{nearest[1]}"
        raise BuildError("E0102", f"no node of the model comes from {text}", place=text, help=help)
    return stands


def history(
    programs: Mapping[str, Program],
    chosen: Wanted,
    mirror: Sequence[str] = (),
    asked: Precision | None = None,
    slow: Sequence[Slow] = (),
) -> History:
    """``programs``: the program before all passes as ``input``, and after each pass. ``mirror``: reasons from the
    options that forbid recomputation, in addition to those of the nodes. ``asked``: the precision of the build.
    ``slow``: the lines of the last program that W011 names."""
    changes: list[Change] = []
    before: Counter[str] = Counter()
    for name, program in programs.items():
        after = Counter(_told(node) for node in nodes_of(program.graph, chosen))
        if after != before:
            gone, new = before - after, after - before
            changes.append(Change(name, tuple(gone.elements()), tuple(new.elements())))
        before = after
    last = list(programs.values())[-1]
    lines = {(line.file, line.number) for line in map(line_of, nodes_of(last.graph, chosen))}
    far = [f"slow: {each.text()}; {each.help}" for each in slow if (each.file, each.line) in lines]
    told = (*far, *reasons(programs, chosen, mirror, asked))
    return History(tuple(_inputs(last, chosen)), tuple(changes), tuple(_endings(last, chosen)), told)


def _told(node: Node) -> str:
    """``add + relu : f32[64, 10]  relu forward, of fc and relu``"""
    more = len(node.types) - _TYPES
    types = ", ".join(map(str, node.types[:_TYPES])) + (f" and {more} more" if more > 0 else "")
    return f"{what(node)} : {types}  {node.name} {node.phase.value}{_of(node)}"


def _of(node: Node) -> str:
    """The names of a node's origins, if it has several."""
    names = list(dict.fromkeys(name for name, _ in node.origins))
    if len(names) < 2:
        return ""
    shown = names[:_NAMES]
    return f", of {', '.join(shown)}" + (f" and {len(names) - _NAMES} more" if len(names) > _NAMES else "")


def _inputs(program: Program, chosen: Wanted) -> Iterable[str]:
    assert program.memory is not None
    for source in program.graph.inputs:
        if chosen((source.name, source.span)):
            place = program.memory.places[source.value]
            yield f"{source.kind.value} {source.name} : {source.value.type} at {place.region}+{place.offset:,}"


def _endings(program: Program, chosen: Wanted) -> Iterable[Ending]:
    facts = Facts(program)
    work = {w.step: w for w in facts.work}
    for time, node in enumerate(facts.schedule):
        if not any(map(chosen, origins_of(node))):
            continue
        step = max(0, facts.step_of[time])  # a view before all work counts to the first step
        told = work.get(step)
        places = tuple(
            f"{place.region}+{place.offset:,}" + (f", steps {first} to {last}" if place.region == "work" else "")
            for place, (first, last) in ((facts.memory.places[v], facts.life(v)) for v in node.outputs)
        )
        if node.op.view or told is None:
            yield Ending(_told(node), node.name, node.phase.value, step, 0, places, ("a view",), 0, 0, 0.0, "")
            continue
        runs: tuple[str, ...] = (told.where,)
        kernels: tuple[str, ...] = ()
        if told.where == "kernel":
            runs = tuple(launch.symbol for launch in program.kernels[node])
            kernels = kernel_texts(program.kernels[node], program.target)
        yield Ending(_told(node), node.name, node.phase.value, step, told.stream, places, runs, told.flops, told.bytes,
                     told.seconds, told.bound, kernels)  # fmt: skip
