"""Commands, options and keys of other tools: none is one of ours, and each help names what is."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
import yaml

from dslc.cli.app import app, run
from dslc.cli.artifacts import named_artifact
from dslc.cli.commands.ops import command as ops
from dslc.cli.habits import COMMANDS, OPTIONS, option_hint
from dslc.cli.table import COMMANDS as OURS
from dslc.dsl.other_names import function_hint
from dslc.runtime.config.fields import FIELDS
from dslc.runtime.config.habits import KEYS, key_hint

#: The fields of dslc.yaml; those of `build` are the options of the command line.
_NAMES = {field.name for field in FIELDS} | {"build.sizes", "build.target", "build.precision"}


def parameters_of(name: str) -> list[click.Parameter]:
    command = app.get_command(app.make_context("dslc", ["check"], resilient_parsing=True), name)
    assert command is not None
    return command.params


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_of_another_tool(name: str) -> None:
    assert name not in OURS
    assert all(each in OURS for each in re.findall(r"`dslc ([a-z]+)", COMMANDS[name]))
    assert "`dslc " in COMMANDS[name]


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_of_another_tool(name: str) -> None:
    """The help is given where what it names exists, and only there."""
    for command in ("train", "predict"):
        parameters = parameters_of(command)
        known = {option for parameter in parameters for option in parameter.opts}
        if option_hint(name, parameters) is not None and name not in known:
            assert set(re.findall(r"`(-[a-z-]+)", OPTIONS[name])) <= known
            break
    else:
        pytest.fail("no command has it")
    assert option_hint(name, parameters_of("explain")) is None


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_another_tool(key: str) -> None:
    assert key_hint(key.upper()) == KEYS[key] is not None and key == key.lower().replace("_", "")
    for text in re.findall(r"`((?:train|data|build|start|save): \{.*?\})`", KEYS[key]):
        [(section, fields)] = yaml.safe_load(text.replace("...", "x: x")).items()
        assert all(any(n == f"{section}.{f}" or n == f"{section}.NAME" for n in _NAMES) for f in fields), text
        assert not {f"{section}.{key}", f"train.{key}", f"data.{key}"} & _NAMES


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["train", "net.nn"], "`--config FILE` names the configuration, which names the model"),
        (["train", "epochs=3"], "`--set FIELD=VALUE` sets a field"),
        (["eval", "other.yaml"], "`--config FILE` names the configuration"),
        (["eval", "best.safetensors", "more"], "`--weights FILE` names weights"),
        (["train", "more"], "(more)\n"),
        (["doctor", "net.nn"], "(net.nn)\n"),
    ],
)
def test_an_argument_that_a_command_does_not_take(
    args: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(args) == 2
    assert says in capsys.readouterr().err


def test_the_commands_say_so() -> None:
    for args, told in (
        (["report"], "no command 'report'; `dslc build` writes build/NAME/report.html"),
        (["frobnicate"], "no command 'frobnicate'; `dslc --help` lists the commands"),
    ):
        with pytest.raises(click.UsageError) as error:
            app.resolve_command(app.make_context("dslc", args, resilient_parsing=True), args)
        assert error.value.message == told
    for name, told in (("view", "write `reshape(x, [...])`"), ("nn.BatchNorm2d", "write `batchnorm(x)`")):
        with pytest.raises(click.UsageError) as error:
            ops.main([name], standalone_mode=False)
        assert told in error.value.message


def test_a_name_of_another_framework_is_told_what_to_write_before_a_near_name() -> None:
    for name in ("svd", "median", "dot", "cross", "adaptive_log_softmax"):  # near: sgd, mean, dft, cross_entropy
        with pytest.raises(click.UsageError) as error:
            ops.main([name], standalone_mode=False)
        assert error.value.message == f"no op '{name}'; {function_hint(name)}" and function_hint(name)


def test_an_unknown_option_is_told_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--batch-size", "8"]) == 2
    assert "No such option '--batch-size'; `--size B=64` builds for this size of the dim B" in capsys.readouterr().err
    assert run(["train", "--epoch", "8"]) == 2
    assert "No such option '--epoch'; `--epochs 10`\n" in capsys.readouterr().err


@pytest.mark.parametrize("columns", ['["t.csv:a", "t.csv:b"]', '["t.csv:a", b]'])
def test_a_list_of_columns_is_one_text(columns: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "dslc.yaml"
    config.write_text(f"model: net.nn\ndata: {{train: {{x: {columns}}}}}\n")
    assert run(["config", "--config", str(config)]) == 3
    assert 'write one text: "t.csv:a,b"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["train", "--modl", "x"], "Did you mean '--model'?"),
        (["build", "--trget", "cpu"], "Did you mean '--target'?"),
        (["predict", "--model", "x"], "`--artifact PATH` names what runs"),
        (["predict", "--xyz"], "No such option '--xyz'."),
    ],
)
def test_an_option_is_told_those_that_it_may_be_a_misspelling_of(
    line: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line) == 2
    assert capsys.readouterr().err.rstrip().endswith(says)


def test_the_folder_of_an_artifact_may_be_renamed(tmp_path: Path) -> None:
    (tmp_path / "net.dslc").touch()
    assert named_artifact(str(tmp_path)) == tmp_path / "net.dslc"
    (tmp_path / "other.dslc").touch()
    assert named_artifact(str(tmp_path)) == tmp_path / f"{tmp_path.name}.dslc"  # which of them is not known
    assert named_artifact(str(tmp_path / "net.dslc")) == tmp_path / "net.dslc"
