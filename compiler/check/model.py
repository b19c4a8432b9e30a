"""Checks one model of a file: the entry point of this folder."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dslc.compiler.check.calls import callgraph
from dslc.compiler.check.calls.declared import check_stored_names
from dslc.compiler.check.expand import Expander
from dslc.compiler.check.instance import Instance, arguments, check_unread, declare, run_model, run_train
from dslc.compiler.check.scope import ModuleScope, build_scope
from dslc.compiler.check.sections import Precision, check_sections, read_budget, read_mesh, read_precision
from dslc.compiler.check.selection import Selection
from dslc.compiler.check.static_rules import check_names, check_placement, warn_unused
from dslc.compiler.check.tensors import ParamInfo, StateInfo
from dslc.compiler.check.training.averages import check_averages
from dslc.compiler.check.training.gradients import check_gradients, unreached
from dslc.compiler.check.training.metrics import check_epoch_metrics
from dslc.compiler.check.training.section import TrainSection
from dslc.compiler.check.values import BlockRef, Problem, Static, kind_of
from dslc.compiler.collection import no_collection
from dslc.compiler.ir.graph import Graph, Input, Kind, Origin, Value, order
from dslc.compiler.ir.sizes import Dim, Poly
from dslc.compiler.ops.packages.find import Package
from dslc.compiler.ops.registry import load_all
from dslc.dsl import syntax
from dslc.dsl.diagnostics import CompileError, Diagnostic, did_you_mean
from dslc.dsl.load import Module, load
from dslc.dsl.load import Program as FileSet
from dslc.dsl.span import Span

_RECURSION = 60_000  # Python frames; the checker's own depth limit (expressions.MAX_DEPTH) applies long before


@dataclass(frozen=True)
class Checked:
    """A model that is valid for every size of its dims.

    ``args``: compile-time arguments of the model and of its train section, with defaults for those not given.
    ``unreached``: parameters that are not frozen, but that the loss does not reach; they are not trained.
    ``packages``: those whose ops its files use, by entry point.
    ``only_trained``: values that training assigns to buffers, each with the one that evaluation reads instead.
    ``graph``: outputs ``result.NAME``, and with a train section ``loss`` and ``metric.NAME``; updates of buffers
    and states.
    """

    name: str
    graph: Graph
    dims: tuple[Dim, ...]
    batch: Dim | None
    model_inputs: tuple[Input, ...]
    results: tuple[str, ...]
    params: Mapping[str, ParamInfo]
    states: Mapping[str, StateInfo]
    only_trained: Mapping[Value, Value]
    unreached: frozenset[str]
    train: TrainSection | None
    args: Mapping[str, Static]
    precision: Precision
    budget: int | None
    mirror: Mapping[Origin, str]
    warnings: tuple[Diagnostic, ...]
    module: Module
    digest: str
    packages: tuple[Package, ...]
    selection: Selection


def check_file(
    path: str | Path,
    model: str | None = None,
    args: Mapping[str, str] | None = None,
    selection: Selection | None = None,
) -> Checked:
    """Checks ``path`` (or ``path:Model``); ``args`` are compile-time arguments as text, as for ``-D``; ``selection``
    adds parameter groups to those of the source.

    Raises CompileError with all errors (at most 20), BuildError for wrong ``args`` or ``selection``.
    """
    text, named = split_model(path)
    return check_program(load(text), model or named, args, selection)


def check_all(path: str | Path, args: Mapping[str, str] | None = None) -> tuple[Checked, ...]:
    """Every model of a file (or the one of ``path:Model``), in order; reports the errors of all models together."""
    text, model = split_model(path)
    if model is not None:
        return (check_file(path, args=args),)
    files = load(text)
    names = [i.name for i in files.main.file.items if isinstance(i, syntax.Block) and i.kind == "model"]
    if len(names) <= 1:
        return (check_program(files, None, args),)
    checked: list[Checked] = []
    found: dict[tuple[str, str, int], Diagnostic] = {}
    for name in dict.fromkeys(names):
        try:
            checked.append(check_program(files, name, args))
        except CompileError as error:
            for d in error.diagnostics:
                found.setdefault((d.code, d.label.span.source.path, d.label.span.start), d)
    if found:
        raise CompileError(sorted(found.values(), key=lambda d: (d.label.span.source.path, d.label.span.start)))
    return tuple(checked)


def split_model(path: str | Path) -> tuple[str, str | None]:
    """File and model of ``FILE:Model``; if a file with this whole name exists, the text names that file."""
    text = str(path)
    if ":" in text and not Path(text).exists():
        file, _, model = text.rpartition(":")
        return file, model
    return text, None


def check_program(
    files: FileSet,
    model: str | None = None,
    args: Mapping[str, str] | None = None,
    selection: Selection | None = None,
) -> Checked:
    """Like check_file, for files that were already read."""
    load_all()
    with _deep(), no_collection():
        return _check(files, model, args or {}, selection or Selection())


@contextmanager
def _deep() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _check(files: FileSet, wanted: str | None, args: Mapping[str, str], selection: Selection) -> Checked:
    module = files.main
    expander = Expander()
    scopes: dict[Module, ModuleScope] = {}
    scope = build_scope(module, expander, scopes)
    for each in scopes.values():
        check_placement(each, expander.reports)
    chosen: Instance | None = None
    section: TrainSection | None = None
    precision, budget = Precision(), None
    with expander.report():
        ref = _choose(scope, module, wanted)
        callgraph.check_calls(ref)
        given = arguments(ref, scope, args, expander)
        chosen = declare(ref, scope, given, expander)
        run_model(chosen, expander)
        section = run_train(chosen, scope, given, expander)
        precision = read_precision(scope, expander)
        budget = read_budget(scope, expander)
        read_mesh(scope, section, expander)
    check_sections(scope, expander)
    check_unread(scope, chosen.ref if chosen else None, expander)
    check_stored_names(expander.tensors, expander.reports)
    for each in scopes.values():
        check_names(each, expander.reports)
    expander.reports.raise_errors()
    assert chosen is not None
    used = {each.entry: each for scope in scopes.values() for each in scope.packages}
    packages = tuple(used[entry] for entry in sorted(used))
    return _finish(chosen, section, precision, budget, files, packages, expander, selection)


def _choose(scope: ModuleScope, module: Module, wanted: str | None) -> BlockRef:
    models = scope.models
    top = Span(module.source, 0, min(4, len(module.source.text)))
    if wanted is not None:
        if wanted not in models:
            near = did_you_mean(wanted, models)
            help = f"did you mean `{near}`?" if near else f"it has {', '.join(models) or 'none'}"
            raise Problem("E0111", f"this file has no model `{wanted}`", top, help=help)
        return models[wanted]
    if not models:
        raise Problem("E0111", "this file has no model", top, help="model Net(x: [B, 8]) -> [B, 2] { ... }")
    if len(models) > 1:
        first = next(iter(models))
        raise Problem(
            "E0111",
            f"this file has {len(models)} models: {', '.join(models)}",
            top,
            "which one is meant?",
            help=f"name it after the file: {module.source.path}:{first}",
        )
    return next(iter(models.values()))


def _finish(
    model: Instance,
    train: TrainSection | None,
    precision: Precision,
    budget: int | None,
    files: FileSet,
    packages: tuple[Package, ...],
    expander: Expander,
    selection: Selection,
) -> Checked:
    tensors = expander.tensors
    if selection:
        tensors.stored = selection.applied(tensors.stored)
    outputs = {f"result.{name}": value for name, value in model.results.items()}
    if train is not None and train.loss is not None:
        outputs["loss"] = train.loss
        outputs.update({f"metric.{name}": value for name, value in train.metrics.items()})
    updates = tensors.updates
    nodes = order([*outputs.values(), *(v for _, v in updates)])
    tensors.keep_constants({v for n in nodes for v in n.inputs} | set(outputs.values()))
    graph = Graph(tensors.inputs, nodes, outputs, updates)
    dims = tuple(d for d in model.frame.scope.dims.values() if isinstance(d, Dim))
    batch = next(iter(expander.batch.dims)) if isinstance(expander.batch, Poly) else None
    if train is not None and train.loss is not None:
        check_epoch_metrics(train, graph, batch, expander.reports)
    check_gradients(graph, dims, expander.reports)
    check_averages(tensors.stored, expander.reports)
    expander.reports.raise_errors()
    missed: frozenset[str] = frozenset()
    if train is not None and train.loss is not None:
        missed = unreached(train, tensors, dims, expander.reports)
        expander.reports.raise_errors()
    warn_unused(model.frame.scope, expander.reports)
    names = [p.name for p in model.ref.block.params]
    args = {n: v for n, v in model.frame.locals.items() if n in names and not isinstance(v, Value)}
    return Checked(
        name=model.ref.block.name,
        graph=graph,
        dims=dims,
        batch=batch,
        model_inputs=tuple(i for n, i in tensors.data.items() if n in names and i.kind is Kind.DATA),
        results=tuple(model.results),
        params=dict(tensors.stored),
        states=dict(tensors.states),
        only_trained=tensors.only_trained,
        unreached=missed,
        train=train,
        args=args | ({} if train is None else train.args),
        precision=precision,
        budget=budget,
        mirror=dict(expander.mirror),
        warnings=tuple(expander.reports.warnings),
        module=files.main,
        digest=_digest(files, packages),
        packages=packages,
        selection=selection,
    )


def _digest(files: FileSet, packages: Sequence[Package]) -> str:
    """SHA-256 of the digests of all files, in the order of use, of the files of numbers, and of the packages whose ops
    they use; paths do not count."""
    digest = hashlib.sha256(b"".join(bytes.fromhex(m.sha256) for m in files.modules))
    for module in files.modules:
        for _, table in module.tables:
            digest.update(f"\nnumbers {table.sha256}".encode())
    for each in packages:
        digest.update(f"\n{each.identity}".encode())
    return digest.hexdigest()


__all__ = ["Checked", "CompileError", "check_all", "check_file", "check_program", "kind_of"]
