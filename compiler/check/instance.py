"""Runs a model once: binds inputs and arguments, expands the body, names the results, then runs its train section."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dslc.base.errors import BuildError
from dslc.compiler.check.calls import callgraph
from dslc.compiler.check.calls.declared import check_input_name, check_public_name, input_type
from dslc.compiler.check.calls.naming import Names
from dslc.compiler.check.calls.signatures import is_list, refuse_list, static_argument
from dslc.compiler.check.expand import Expander
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.literals import parse_argument
from dslc.compiler.check.scope import ModuleScope, name_span
from dslc.compiler.check.sections import sections_of
from dslc.compiler.check.training.section import TrainSection, check_train
from dslc.compiler.check.values import BlockRef, Poison, Poisoned, Problem, Static, require_finite
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.sizes import Poly
from dslc.dsl import syntax
from dslc.dsl.diagnostics import did_you_mean


@dataclass
class Instance:
    """A model during the check."""

    ref: BlockRef
    frame: Frame
    #: the local names of the body: parameters, layers and variables
    inner: dict[str, Static] = field(default_factory=dict)
    results: dict[str, Value] = field(default_factory=dict)


def declare(ref: BlockRef, scope: ModuleScope, given: Mapping[str, Static], expander: Expander) -> Instance:
    """Declares the model's arguments, which sizes of inputs may use, then its data inputs and the batch dim: the first
    axis of the first input."""
    frame = Frame(scope, Names(""), "", file_dims=True)
    with expander.report():
        check_public_name(ref.block.name, "a model", name_span(ref.block, ref.block.name))
    for name, place in scope.places.items():
        if name in scope.dims:
            with expander.report():
                check_public_name(name, "a dim", place)
    for param in ref.block.params:
        if isinstance(param.type, syntax.ScalarTypeExpr):
            with expander.report():
                _bind_argument(ref.block, param, given, frame, expander)
    for param in ref.block.params:
        if isinstance(param.type, syntax.ScalarTypeExpr):
            continue
        span = name_span(param, param.name)
        with expander.report():
            expander.statements.check_free(
                param.name, Poison(), span, frame
            )  # before the name hides what its type reads
        frame.locals[param.name] = Poison()  # until its type is known
        with expander.report():
            check_input_name(param.name, span)
            for size in param.type.shape:
                if isinstance(size, syntax.Name) and scope.dim(size.name) is None and size.name not in scope.values:
                    names = [p.name for p in ref.block.params]
                    if size.name not in names and size.name != "_":
                        scope.values[size.name] = Poison()  # one error for all places of the dim
                        raise Problem("E0307", f"dim `{size.name}` is not declared", size.span, "not known",
                                      help=f"dim {size.name} in 1..512 = 64")  # fmt: skip
            value = expander.tensors.add_data(param.name, input_type(param.type, frame, expander), param.span)
            shape = value.type.shape
            if expander.batch is None and shape and len(expander.tensors.data) == 1 and isinstance(shape[0], Poly):
                expander.batch = shape[0] if shape[0] in [scope.dim(d) for d in scope.dims] else None
            expander.statements.bind(param.name, value, span, frame)
            frame.params[param.name] = param
    return Instance(ref, frame)


def arguments(ref: BlockRef, scope: ModuleScope, args: Mapping[str, str], expander: Expander) -> dict[str, Static]:
    """Compile-time arguments passed from outside, by name, converted as the model or its train section declares
    them."""
    declared = {p.name: p for p in ref.block.params if isinstance(p.type, syntax.ScalarTypeExpr)}
    for section in sections_of(scope, "train"):
        if section.target == ref.block.name:
            declared |= {p.name: p for p in section.params if isinstance(p.type, syntax.ScalarTypeExpr)}
    found: dict[str, Static] = {}
    for name, text in args.items():
        if name not in declared or is_list(declared[name]):
            near = did_you_mean(name, declared)
            help = f"did you mean `{near}`?" if near else f"it takes {', '.join(declared) or 'no arguments'}"
            raise BuildError("E0605", f"`{ref.block.name}` has no argument `{name}`", place=f"-D {name}", help=help)
        kind = declared[name].type
        assert isinstance(kind, syntax.ScalarTypeExpr)
        found[name] = parse_argument(name, kind.name, text)
    return found


def _bind_argument(
    block: syntax.Block, param: syntax.Param, given: Mapping[str, Static], frame: Frame, expander: Expander
) -> None:
    """Binds a compile-time argument of a model; until then its name is poisoned."""
    span = name_span(param, param.name)
    expander.statements.check_free(param.name, Poison(), span, frame)
    frame.locals[param.name] = Poison()
    refuse_list(param, block.name)
    if param.name in given:
        value = given[param.name]
    elif param.default is not None:
        value = expander.evaluate(param.default, frame)
    else:
        help = f"give it a default, or -D {param.name}=VALUE"
        raise Problem("E0201", f"`{param.name}` of `{block.name}` has no value", span, help=help)
    require_finite(value, f"`{param.name}`, an argument of a model,", param.span)
    expander.statements.bind(param.name, static_argument(param, value, param.span, block.name), span, frame)


def run_model(model: Instance, expander: Expander) -> None:
    block, frame = model.ref.block, model.frame
    with expander.report(frame):
        frame.groups = expander.with_attrs(frame.groups, block.attrs, frame)
        inputs, params = dict(frame.locals), dict(frame.params)
        failed: Problem | None = None
        try:
            value = expander.run_block(block, frame, block.span)
        except Poisoned:
            value = Poison()
        except Problem as problem:  # told below, once `train` knows the names of the results
            value, failed = Poison(), problem
        # in `train`, only inputs, arguments and results are in scope, not the model's local names
        model.inner, frame.locals, frame.params = frame.locals, inputs, params
        frame.origins.clear()
        _name_results(model, value)
        if failed is not None:
            raise failed


def _name_results(model: Instance, value: Static) -> None:
    block = model.ref.block
    values = list(value) if isinstance(value, tuple) else [value]
    declared = [r.name for r in block.results] or [None] * len(values)
    names = [n or ("output" if len(declared) == 1 else f"output_{i}") for i, n in enumerate(declared)]
    for i, name in enumerate(names):
        place = block.results[i].span if block.results else block.span
        if name.startswith("_"):
            raise Problem("E0112", f"a result's name cannot begin with `_`: `{name}`", place, "not a public name")
        check_public_name(name, "a result", place)
        if name in model.frame.locals:
            raise Problem("E0103", f"the result `{name}` has the name of an input, argument or other result", place)
        model.frame.locals[name] = values[i] if i < len(values) and not isinstance(value, Poison) else Poison()
        item = model.frame.locals[name]
        if isinstance(item, Value):
            model.results[name] = item


def run_train(model: Instance, scope: ModuleScope, given: dict[str, Static], expander: Expander) -> TrainSection | None:
    name = model.ref.block.name
    mine = [s for s in sections_of(scope, "train") if s.target == name]
    if len(mine) > 1:
        raise Problem("E0103", f"`{name}` has two train sections", mine[1].span, "again here")
    if not mine:
        return None
    names, params = dict(model.frame.locals), dict(model.frame.params)
    frame = Frame(scope, Names("train"), "train", unseen=model.inner, file_dims=True, locals=names, params=params)
    frame.sees_parameters = True
    return check_train(mine[0], frame, given, expander)


def check_unread(scope: ModuleScope, chosen: BlockRef | None, expander: Expander) -> None:
    """E0110 for inputs of the model that nothing reads."""
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
