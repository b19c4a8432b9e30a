"""Decides which nodes run as dslc's own kernels and which through their numpy reference implementation.

Before: a graph. After: ``program.kernels`` holds the nodes that run as kernels, with their launches. The provider
decides: ``reference`` uses no kernels; ``auto`` uses every kernel that exists; ``own`` refuses a program in which a
kernel is missing and lists the ops. ``vendor`` is ``auto`` with NVIDIA's libraries for contractions on GPUs. A GPU has
no reference: there every node must have a kernel. A measured choice (``build.choices``) decides how a node's kernel or
library call computes it, and whether all steps of a loop are one kernel; without one, the model of time decides
that. The body of a loop is a program of its own, which is planned here, since its work region
becomes the scratch memory of the loop's node.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Sequence

from dslc.base.errors import BuildError
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowering_cache import lowered
from dslc.compiler.codegen.targets import DEFAULT, target_of, traits_of
from dslc.compiler.cost import machine_for, total_seconds
from dslc.compiler.ir.bodies.chain import chain
from dslc.compiler.ir.bodies.scans import scans
from dslc.compiler.ir.build import Build, build_of_body
from dslc.compiler.ir.choice import Choice, key_of
from dslc.compiler.ir.graph import Graph, Node
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.scan import body_of, int_count, scan
from dslc.compiler.passes.plan.memory import memory
from dslc.compiler.passes.plan.schedule import schedule


def select(program: Program, build: Build) -> Program:
    """The pass. Raises BuildError E0603 if an op needs a kernel and has none for its types and sizes."""
    traits = traits_of(program.target)
    ways = {node: way_of_loop(node, program, build) for node in program.graph.nodes if node.op is scan}
    loops = {node: body for node, (_, body) in ways.items() if body is not None}
    chosen = {node: choice for node, (choice, _) in ways.items() if choice is not None}
    room = {node: (body.memory.work_bytes,) for node, body in loops.items() if body.memory and body.memory.work_bytes}
    if traits.has_reference and build.provider == "reference":
        _refuse_packages(program, build, program.graph.nodes)
        return dataclasses.replace(program, loops=loops, scratch=room) if loops else program
    vendor = build.provider == "vendor" and traits.has_libraries
    working = [n for n in program.graph.nodes if not n.op.view and n not in loops]
    chosen |= {node: choice for node in working if node not in ways and (choice := choice_of(node, build)) is not None}
    launches = {n: found for n in working if (found := _launches(n, program, vendor, chosen.get(n))) is not None}
    _refuse_packages(program, build, [node for node in working if node not in launches])
    _refuse_missing(program, build, working, launches)
    scratch = {n: blocks for n, found in launches.items() if (blocks := _blocks(found))}
    return dataclasses.replace(program, kernels=launches, scratch=scratch | room, loops=loops, vendor=vendor)


def _planned_body(node: Node, program: Program, build: Build) -> Program:
    """The program of a loop's body with all decisions of the planners; its nodes run one after another."""
    graph = body_of(node.attrs)
    own = build_of_body(graph, build)
    body = Program(program.entry, program.sizes, graph, target=program.target, vendor=program.vendor)
    return memory(schedule(select(body, own), own), own)


def way_of_loop(node: Node, program: Program, build: Build) -> tuple[Choice | None, Program | None]:
    """How one kernel computes all steps of a loop, if measurements say so or, without any, if the model says that it is
    faster than the kernels of the body; else the planned body."""
    measured = choice_of(node, build)
    if measured is not None and measured.algorithm != "":
        return measured, None
    body = _planned_body(node, program, build)
    modelled = _modelled(node, body, build) if measured is None else None
    return (None, body) if modelled is None else (modelled, None)


def _modelled(node: Node, body: Program, build: Build) -> Choice | None:
    """One kernel for all steps of a loop, if the model says that it is faster than the kernels of the body."""
    vendor = build.provider == "vendor" and traits_of(body.target).has_libraries
    found = target_of(body.target, vendor).resident_loop(node)
    if found is not None and found[1] < int_count(node) * total_seconds(body.computing, machine_for(build)):
        return found[0]
    return None


def loop_by_model(node: Node, target: str, *, vendor: bool) -> tuple[Choice | None, Program]:
    """How a build without measurements computes a loop: one kernel for all steps, or None, the kernels of the body; and
    the planned body."""
    build = Build(target=target, provider="vendor" if vendor else "own")
    body = _planned_body(node, Program("predict", {}, Graph((), (), {}), target=target, vendor=vendor), build)
    return _modelled(node, body, build), body


def _launches(node: Node, program: Program, vendor: bool, choice: Choice | None) -> Sequence[Launch] | None:
    if node.op in (scan, scans, chain):  # no other has the same body
        return target_of(program.target, vendor).lower(node, choice)
    return lowered(node, program.target, vendor, choice)


def choice_of(node: Node, build: Build) -> Choice | None:
    """How measurements say that a node is computed best, by a provider of the build; None if nothing was measured."""
    if not build.choices.ways:
        return None
    way = build.choices.best(key_of(node), build.providers)
    return None if way is None else way.choice


def _refuse_missing(program: Program, build: Build, working: Sequence[Node], kernels: Collection[Node]) -> None:
    """Raises BuildError E0603 if kernels are required and not all working nodes have one."""
    has_reference = traits_of(program.target).has_reference
    if len(kernels) < len(working) and (build.provider == "own" or not has_reference):
        missing = missing_ops(working, kernels)
        listed = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        raise BuildError(
            "E0603",
            f"{program.entry} needs ops without a kernel for the target {program.target}: {listed}",
            place="--providers own" if has_reference else f"--target {program.target}",
            help="build with --providers auto, which runs these through numpy"
            if has_reference
            else f"build with --target {DEFAULT}, or avoid these ops in the model",
        )


def _refuse_packages(program: Program, build: Build, without: Sequence[Node]) -> None:
    """Raises BuildError E0603 if a node without a kernel needs an op of a package, whose name has a dot: the machine
    that runs the artifact may not have the package."""
    for name in sorted({name for node in without for name in _package_ops(node)}):
        raise BuildError(
            "E0603",
            f"{program.entry} needs a kernel for the op {name} of a package, and has none for {program.target}",
            place="--providers reference" if build.provider == "reference" else f"--target {program.target}",
            help="build with --providers auto: the reference needs the package at run time"
            if build.provider == "reference"
            else "use other dtypes or sizes, or ask its author for a kernel",
        )


def _package_ops(node: Node) -> Iterator[str]:
    """The ops of packages that a node computes: its own, and those that its attributes name."""
    left: list[object] = [node.op.name, *node.attrs.values()]
    while left:
        each = left.pop()
        if isinstance(each, tuple):
            left.extend(each)
        elif isinstance(each, str) and "." in each and each in OPS:
            yield each


def _blocks(launches: Sequence[Launch]) -> tuple[int, ...]:
    """The bytes of a node's scratch blocks, by number."""
    sizes = {x.number: x.bytes for launch in launches for x in launch.scratch}
    assert sorted(sizes) == list(range(len(sizes))), "scratch blocks must be numbered from 0"
    return tuple(sizes[i] for i in range(len(sizes)))


def missing_ops(working: Iterable[Node], kernels: Container[Node]) -> list[str]:
    """The names of the ops that have no kernel, most frequent first."""
    return [name for name, _ in Counter(n.op.name for n in working if n not in kernels).most_common()]
