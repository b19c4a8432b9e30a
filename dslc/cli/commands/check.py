"""``dslc check``"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dslc.base.errors import EXIT_OK, DslcError
from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.options import define_option, pairs
from dslc.cli.output import emit, note, report_error, settings, size_text, tell_warnings
from dslc.cli.settings import default_config

if TYPE_CHECKING:
    from dslc.compiler.check.model import Checked
    from dslc.runtime.config.config import Config
    from dslc.runtime.train.setup import Plan


@click.command(cls=Command)
@click.argument("models", metavar="[FILE[:MODEL]]...", nargs=-1)
@define_option
@click.option("--data", "with_data", is_flag=True, help="Check the data and the start of ./dslc.yaml, as `train` does.")
@click.option("--config", "path", metavar="FILE", help="Read this file instead of ./dslc.yaml.")
def command(models: tuple[str, ...], defines: tuple[str, ...], with_data: bool, path: str | None) -> int:
    """Check models: names, types, shapes, train sections.

    Checks all models of each FILE, or the named one. Without FILE, checks ./dslc.yaml: its model with its arguments,
    the build options, and the parameters, inputs, metrics and schedules that it names.
    """
    from dslc.compiler.check.model import check_all

    if models and (with_data or path is not None):
        raise click.UsageError("--data and --config check what dslc.yaml says, so they take no FILE")
    given = pairs(defines, "-D")
    config = None
    if not models:
        config = default_config("name a model: FILE.nn", path=path, defines=defines)
        models = (str(config.model),)
    plan: Plan | None = None
    errors: list[DslcError] = []
    found: list[Checked] = []
    for text in models:
        try:
            if config is None:
                found += check_all(text, given)
            else:
                found.append(_checked(config))
                plan = _plan(config, found[0], with_data=with_data)
        except DslcError as error:
            errors.append(error)
    if errors and not settings().json:
        for wrong in errors:
            report_error(wrong, settings())
    tell_warnings(found)
    code = errors[0].exit_code if errors else EXIT_OK
    data: dict[str, Any] = {"models": [_data(checked) for checked in found]}
    if errors:
        data |= {"errors": [item for wrong in errors for item in wrong.as_json()], "exit_code": code}
    lines = [_line(checked) for checked in found]
    if plan is not None:
        data["data"] = _rows(plan)
        lines.append(f"  data: {' and '.join(f'{n} rows to {use}' for use, n in _rows(plan).items() if n is not None)}")
    emit(data, "\n".join(lines))
    return code


def _checked(config: Config) -> Checked:
    from dslc.cli.compile import check_config

    return check_config(config)


def _plan(config: Config, checked: Checked, *, with_data: bool) -> Plan | None:
    """The run that `dslc train` would begin; None without its data. Raises DslcError for build options and names of
    dslc.yaml that do not fit the model, and for data and weights that do not."""
    from dslc.cli.compile import foreseen
    from dslc.runtime.config.idle import idle_settings
    from dslc.runtime.train.files import require_data, require_weights
    from dslc.runtime.train.named import require_names
    from dslc.runtime.train.setup import plan_run
    from dslc.runtime.train.start import require_start

    if not with_data:
        model = foreseen(config, checked)
        if checked.train is not None:
            require_names(config, model.interface)
            for line in idle_settings(config):
                note(one_line(line))
        return None
    require_data(config, training=True)
    require_weights(config.start.weights)
    model = foreseen(config, checked)
    require_start(config.start, model.weights)
    return plan_run(config, model, lambda text: note(one_line(text)))


def _rows(plan: Plan) -> dict[str, int | None]:
    return {"train": plan.train.rows, "evaluate": None if plan.eval is None else plan.eval.rows}


def _elements(checked: Checked) -> int:
    from math import prod

    shapes = [info.input.value.type.shape for info in checked.params.values() if info.input.kind.value == "param"]
    return sum(prod(size for size in shape if isinstance(size, int)) for shape in shapes)


def _line(checked: Checked) -> str:
    inputs = ", ".join(f"{i.name}: {i.value.type}" for i in checked.model_inputs)
    results = ", ".join(f"{name}: {checked.graph.outputs[f'result.{name}'].type}" for name in checked.results)
    count = _elements(checked)
    trained = "" if checked.train is not None else "; no train section"
    return (
        f"{one_line(checked.module.source.path)}: {checked.name}({inputs}) -> ({results})\n"
        f"  {len(checked.graph.nodes)} operations, {count:,} parameters ({size_text(4 * count)} in f32){trained}"
    )


def _data(checked: Checked) -> dict[str, Any]:
    return {
        "file": checked.module.source.path,
        "model": checked.name,
        "inputs": [{"name": i.name, "type": str(i.value.type)} for i in checked.model_inputs],
        "results": [{"name": n, "type": str(checked.graph.outputs[f"result.{n}"].type)} for n in checked.results],
        "dims": [{"name": d.name, "low": d.low, "high": d.high, "default": d.default} for d in checked.dims],
        "operations": len(checked.graph.nodes),
        "parameters": _elements(checked),
        "trained": checked.train is not None,
        "warnings": [d.as_json() for d in checked.warnings],
    }
