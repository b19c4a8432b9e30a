"""Checks one model of a file: the entry point of this folder."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dslc.base.errors import BuildError
from dslc.compiler.check import callgraph
from dslc.compiler.check.expand import Expander
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.literals import parse_argument
from dslc.compiler.check.naming import Names
from dslc.compiler.check.scope import ModuleScope, build_scope, name_span
from dslc.compiler.check.sections import Precision, read_budget, read_precision, sections_of
from dslc.compiler.check.signatures import check_input_name, input_type, static_argument
from dslc.compiler.check.static_rules import check_names, check_placement
from dslc.compiler.check.tensors import ParamInfo
from dslc.compiler.check.train import TrainSection, check_train
from dslc.compiler.check.values import BlockRef, Poison, Poisoned, Problem, Static, kind_of
from dslc.compiler.ir.graph import Graph, Input, Kind, Value, order
from dslc.compiler.ir.sizes import Dim, Poly
from dslc.compiler.ops.registry import load_all
from dslc.dsl import syntax
from dslc.dsl.diagnostics import CompileError, Diagnostic, did_you_mean
from dslc.dsl.load import Module, load
from dslc.dsl.load import Program as FileSet
from dslc.dsl.span import Span

_RECURSION = 60_000  # Python frames; the checker's own depth limit (expressions.MAX_DEPTH) strikes long before


@dataclass(frozen=True)
class Checked:
    """A model that holds together for every size of its dims.

    ``graph``: outputs ``result.NAME``, and with a train section ``loss`` and ``metric.NAME``; updates of buffers.
    """

    name: str
    graph: Graph
    dims: tuple[Dim, ...]
    batch: Dim | None
    model_inputs: tuple[Input, ...]
    results: tuple[str, ...]
    params: Mapping[str, ParamInfo]
    train: TrainSection | None
    args: Mapping[str, Static]
    precision: Precision
    budget: int | None
    warnings: tuple[Diagnostic, ...]
    module: Module
    digest: str


@dataclass
class _Model:
    """A model on its way."""

    ref: BlockRef
    frame: Frame
    results: dict[str, Value] = field(default_factory=dict)


def check_file(path: str | Path, model: str | None = None, args: Mapping[str, str] | None = None) -> Checked:
    """Checks ``path`` (or ``path:Model``); ``args`` are compile-time arguments as text, as after ``-D``.

    Raises CompileError with everything that is wrong (at most 20 errors), BuildError for a wrong ``args``.
    """
    text, named = _split_model(path)
    return check_program(load(text), model or named, args)


def check_all(path: str | Path, args: Mapping[str, str] | None = None) -> tuple[Checked, ...]:
    """Every model of a file (or the one of ``path:Model``), in order; what is wrong with any of them at once."""
    text, model = _split_model(path)
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


def _split_model(path: str | Path) -> tuple[str, str | None]:
    text = str(path)
    if ":" in text and not Path(text).exists():
        file, _, model = text.rpartition(":")
        return file, model
    return text, None


def check_program(files: FileSet, model: str | None = None, args: Mapping[str, str] | None = None) -> Checked:
    """As check_file, for files that were read."""
    load_all()
    with _deep():
        return _check(files, model, args or {})


@contextmanager
def _deep() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _check(files: FileSet, wanted: str | None, args: Mapping[str, str]) -> Checked:
    module = files.main
    expander = Expander()
    scopes: dict[Module, ModuleScope] = {}
    scope = build_scope(module, expander, scopes)
    for each in scopes.values():
        check_placement(each, expander.reports)
    chosen: _Model | None = None
    section: TrainSection | None = None
    precision, budget = Precision(), None
    with expander.report():
        ref = _choose(scope, module, wanted)
        callgraph.check_calls(ref)
        chosen = _declare(ref, scope, expander)
        given = _arguments(ref, scope, args, expander)
        _run_model(chosen, given, expander)
        section = _train(chosen, scope, given, expander)
        precision = read_precision(scope, expander)
        budget = read_budget(scope, expander)
    _check_sections(scope, expander)
    _check_others(scope, chosen.ref if chosen else None, expander)
    for each in scopes.values():
        check_names(each, expander.reports)
    expander.reports.raise_errors()
    assert chosen is not None
    return _finish(chosen, section, precision, budget, files, expander)


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
            help=f"name it behind the file: {module.source.path}:{first}",
        )
    return next(iter(models.values()))


def _declare(ref: BlockRef, scope: ModuleScope, expander: Expander) -> _Model:
    """Data inputs of the model, and the batch dim: the first axis of the first one."""
    frame = Frame(scope, Names(""), "", file_dims=True)
    for param in ref.block.params:
        if isinstance(param.type, syntax.ScalarTypeExpr):
            continue
        frame.locals[param.name] = Poison()  # until its type is known
        with expander.report():
            span = name_span(param, param.name)
            check_input_name(param.name, span)
            for size in param.type.shape:
                if isinstance(size, syntax.Name) and scope.dim(size.name) is None and size.name not in scope.values:
                    names = [p.name for p in ref.block.params]
                    if size.name not in names:
                        raise Problem("E0307", f"dim `{size.name}` is not declared", size.span, "not known",
                                      help=f"dim {size.name} in 1..512 = 64")  # fmt: skip
            value = expander.tensors.add_data(param.name, input_type(param.type, frame, expander), param.span)
            shape = value.type.shape
            if expander.batch is None and shape and len(expander.tensors.data) == 1 and isinstance(shape[0], Poly):
                expander.batch = shape[0] if shape[0] in [scope.dim(d) for d in scope.dims] else None
            expander.bind(param.name, value, span, frame)
    return _Model(ref, frame)


def _arguments(ref: BlockRef, scope: ModuleScope, args: Mapping[str, str], expander: Expander) -> dict[str, Static]:
    """Compile-time arguments given from outside, by name, as the model or its train section declares them."""
    declared = {p.name: p for p in ref.block.params if isinstance(p.type, syntax.ScalarTypeExpr)}
    for section in sections_of(scope, "train"):
        if section.target == ref.block.name:
            declared |= {p.name: p for p in section.params if isinstance(p.type, syntax.ScalarTypeExpr)}
    found: dict[str, Static] = {}
    for name, text in args.items():
        if name not in declared:
            near = did_you_mean(name, declared)
            help = f"did you mean `{near}`?" if near else f"it takes {', '.join(declared) or 'no arguments'}"
            raise BuildError("E0605", f"`{ref.block.name}` has no argument `{name}`", place=f"-D {name}", help=help)
        kind = declared[name].type
        assert isinstance(kind, syntax.ScalarTypeExpr)
        found[name] = parse_argument(name, kind.name, text)
    return found


def _run_model(model: _Model, given: Mapping[str, Static], expander: Expander) -> None:
    block, frame = model.ref.block, model.frame
    shown: list[str] = []
    for param in block.params:
        if not isinstance(param.type, syntax.ScalarTypeExpr):
            continue
        with expander.report():
            span = name_span(param, param.name)
            if param.name in given:
                value = given[param.name]
            elif param.default is not None:
                value = expander.evaluate(param.default, frame)
            else:
                frame.locals[param.name] = Poison()
                help = f"give it a default, or -D {param.name}=VALUE"
                raise Problem("E0201", f"`{param.name}` of `{block.name}` has no value", span, help=help)
            expander.bind(param.name, static_argument(param, value, param.span, block.name), span, frame)
            shown.append(param.name)
    with expander.report(frame):
        frame.groups = expander.with_attrs(frame.groups, block.attrs, frame)
        inputs = dict(frame.locals)
        try:
            value = expander.run_block(block, frame, block.span)
        except Poisoned:
            value = Poison()
        # in `train`, the model's own local names are out of scope: inputs, arguments and results only
        frame.locals = inputs
        frame.origins.clear()
        _name_results(model, value)


def _name_results(model: _Model, value: Static) -> None:
    block = model.ref.block
    values = list(value) if isinstance(value, tuple) else [value]
    declared = [r.name for r in block.results] or [None] * len(values)
    names = [n or ("output" if len(declared) == 1 else f"output_{i}") for i, n in enumerate(declared)]
    for i, name in enumerate(names):
        place = block.results[i].span if block.results else block.span
        if name.startswith("_"):
            raise Problem("E0112", f"a result's name cannot begin with `_`: `{name}`", place, "not a public name")
        if name in model.frame.locals:
            raise Problem("E0103", f"the result `{name}` has the name of an input, argument or other result", place)
        model.frame.locals[name] = values[i] if i < len(values) and not isinstance(value, Poison) else Poison()
        item = model.frame.locals[name]
        if isinstance(item, Value):
            model.results[name] = item


def _train(model: _Model, scope: ModuleScope, given: dict[str, Static], expander: Expander) -> TrainSection | None:
    name = model.ref.block.name
    mine = [s for s in sections_of(scope, "train") if s.target == name]
    if len(mine) > 1:
        raise Problem("E0103", f"`{name}` has two train sections", mine[1].span, "again here")
    if not mine:
        return None
    frame = Frame(scope, Names("train"), "train", file_dims=True, locals=dict(model.frame.locals))
    return check_train(mine[0], frame, given, expander)


def _check_sections(scope: ModuleScope, expander: Expander) -> None:
    """E0508 for a train section of no model, E0113 for an unknown kind."""
    known = ("train", "precision", "budget")
    for item in scope.module.file.items:
        if not isinstance(item, syntax.Section):
            continue
        with expander.report():
            if item.kind not in known:
                if item.kind == "step":
                    raise Problem("E0009", "`step` is part of the language, but this build of dslc does not compile it",
                                  item.span, "not built yet")  # fmt: skip
                near = did_you_mean(item.kind, known)
                help = f"did you mean `{near}`?" if near else f"known are {', '.join(known)}"
                raise Problem("E0113", f"unknown section `{item.kind}`", name_span(item, item.kind), help=help)
            if item.kind == "train" and item.target not in scope.models:
                near = did_you_mean(item.target or "", scope.models)
                help = f"did you mean `{near}`?" if near else "train MODEL(label: i32[B]) { ... }"
                place = name_span(item, item.target) if item.target else item.span
                raise Problem("E0508", f"`train {item.target or ''}` names no model of this file".replace(" `", "`"),
                              place, help=help)  # fmt: skip


def _check_others(scope: ModuleScope, chosen: BlockRef | None, expander: Expander) -> None:
    """Inputs of the model that nothing reads: E0110."""
    if chosen is None:
        return
    read = {t.name for t in callgraph.walk(chosen.block.body) if isinstance(t, syntax.Name)}
    for section in sections_of(scope, "train"):
        if section.target == chosen.block.name:
            names = {t.name for t in callgraph.walk(section.entries) if isinstance(t, syntax.Name)}
            _report_unread(section.params, names, "train", expander)
            read |= names
    _report_unread(chosen.block.params, read, chosen.block.name, expander)


def _report_unread(params: tuple[syntax.Param, ...], read: set[str], owner: str, expander: Expander) -> None:
    for param in params:
        if param.name not in read and isinstance(param.type, syntax.TensorTypeExpr):
            expander.reports.add(
                Problem(
                    "E0110",
                    f"`{param.name}` of `{owner}` is never read",
                    name_span(param, param.name),
                    "not used",
                    help="remove it, or use it",
                )
            )


def _finish(
    model: _Model,
    train: TrainSection | None,
    precision: Precision,
    budget: int | None,
    files: FileSet,
    expander: Expander,
) -> Checked:
    tensors = expander.tensors
    outputs = {f"result.{name}": value for name, value in model.results.items()}
    if train is not None and train.loss is not None:
        outputs["loss"] = train.loss
        outputs.update({f"metric.{name}": value for name, value in train.metrics.items()})
    updates = tuple(tensors.updates)
    nodes = order([*outputs.values(), *(v for _, v in updates)])
    dims = tuple(d for d in model.frame.scope.dims.values() if isinstance(d, Dim))
    batch = next(iter(expander.batch.dims)) if isinstance(expander.batch, Poly) else None
    names = [p.name for p in model.ref.block.params]
    args = {n: v for n, v in model.frame.locals.items() if n in names and not isinstance(v, Value)}
    return Checked(
        name=model.ref.block.name,
        graph=Graph(tensors.inputs, nodes, outputs, updates),
        dims=dims,
        batch=batch,
        model_inputs=tuple(i for n, i in tensors.data.items() if n in names and i.kind is Kind.DATA),
        results=tuple(model.results),
        params=dict(tensors.stored),
        train=train,
        args=args,
        precision=precision,
        budget=budget,
        warnings=tuple(expander.reports.warnings),
        module=files.main,
        digest=_digest(files),
    )


def _digest(files: FileSet) -> str:
    """SHA-256 over the digests of all files, in the order in which they use each other; paths do not count."""
    return hashlib.sha256(b"".join(bytes.fromhex(m.sha256) for m in files.modules)).hexdigest()


__all__ = ["Checked", "CompileError", "check_all", "check_file", "check_program", "kind_of"]
