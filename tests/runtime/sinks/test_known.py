"""Which sinks a configuration may name, with which options, and what is told before anything is built."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from sinking.fake_packages import Server
from tables.packages import install
from training.fake_session import FakeSession

from dslc.base.errors import DataError, DslcError
from dslc.runtime.config.load import load_config
from dslc.runtime.sinks.known import GROUP, OWN, installed, require_sinks
from dslc.runtime.train.loop import train

MINE = """
import json
import re
from pathlib import Path


class Lines:
    def __init__(self, path, about):
        self.path = path
        self.where = str(path)
        self.put({"id": about.id, "name": about.name, "epochs": about.config["train.epochs"]})

    def put(self, value):
        with self.path.open("a") as file:
            file.write(json.dumps(value) + "\\n")

    def write(self, points):
        for point in points:
            self.put({"kind": point.kind, "step": point.step, "epoch": point.epoch, **point.values})

    def close(self, state, exit_code):
        self.put([state, exit_code])


def open_sink(about, file="lines.jsonl"):
    return Lines(Path(about.folder, file), about)


def broken(about):
    raise RuntimeError("no room")


number = 3
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    points = {name: f"eggs_sink:{name}" for name in ("open_sink", "broken", "number")} | {"gone": "eggs_gone:open_sink"}
    folder = install(tmp_path / "site", "eggs_sink", MINE, points, group=GROUP)
    install(tmp_path / "site", "ham_sink", "", {"twice": "a:b"}, group=GROUP)
    install(tmp_path / "site", "jam_sink", "", {"twice": "a:b"}, group=GROUP)
    monkeypatch.syspath_prepend(str(folder))
    yield
    sys.modules.pop("eggs_sink", None)


def configured(folder: Path, sinks: str, **flags: Any) -> Any:
    text = (folder / "dslc.yaml").read_text()
    (folder / "dslc.yaml").write_text(text.replace("best: accuracy", f"best: accuracy, sinks: {sinks}"))
    return load_config(folder / "dslc.yaml", flags)


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_sink_of_a_package(project: Path, package: None) -> None:
    config = configured(project, "{open_sink: {file: mine.jsonl}}")
    console = io.StringIO()
    train(config, FakeSession(3), project / "build", console=console)
    first, *points, last = lines(project / "runs/toy/mine.jsonl")
    log = lines(project / "runs/toy/log.jsonl")
    assert points == [{name: value for name, value in entry.items() if name != "rows"} for entry in log]
    assert first == {"id": first["id"], "name": "toy", "epochs": 4} and last == ["finished", 0]
    assert f"open_sink: {project}/runs/toy/mine.jsonl\n" in console.getvalue()
    newest = max((project / "runs/toy/checkpoints").iterdir())
    newest.unlink()
    train(config, FakeSession(3), project / "build", True, console)
    again = lines(project / "runs/toy/mine.jsonl")[len(points) + 2 :]
    assert again == [first, ["finished", 0]], "what the sink has does not come again"


@pytest.mark.parametrize(
    ("sinks", "code", "said"),
    [
        ("{wand: true}", "R101", "did you mean `wandb`?"),
        ("{mine: true}", "R101", "no sink is called `mine`"),
        ("{twice: true}", "R101", "2 installed packages use this name: ham-sink, jam-sink"),
        ("{number: true}", "R101", "it is a int, not a function"),
        ("{gone: true}", "R101", "its package cannot be imported: ModuleNotFoundError"),
        ("{open_sink: {path: x}}", "R104", "does not take these options: got an unexpected keyword argument 'path'"),
        ("{broken: {a: 1}}", "R104", "does not take these options"),
        ("{wandb: {projekt: x}}", "R104", "`save.sinks.wandb` has no option `projekt`: did you mean `project`?"),
        ("{wandb: {base_url: 'http://example.org'}}", "R104", "has no option `base_url`"),
        ("{mlflow: {uri: 'http://example.org'}}", "R104", "it takes experiment, name, tags"),
        ("{trackio: {space_id: a/b}}", "R104", "has no option `space_id`"),
        ("{tensorboard: {folder: x}}", "R104", "it takes none: write `true`"),
        ("{wandb: {project: 3}}", "R104", "`project` of `save.sinks.wandb` is a text, not `3`"),
        ("{wandb: {tags: a}}", "R104", "is a list of texts"),
        ("{wandb: {mode: fast}}", "R104", "is `online` or `offline`, not `fast`"),
        ("{mlflow: {tags: {a: 1}}}", "R104", "is a mapping of texts"),
        ("{wandb: 3}", "R104", "is true, false or a mapping of options"),
        ("{wandb: null}", "R104", "is true, false or a mapping of options"),
        ("[wandb]", "R104", "`save.sinks` is a mapping"),
        ("{a.b: true}", "R104", "cannot be a name in `save.sinks`"),
    ],
)
def test_what_is_refused(sinks: str, code: str, said: str, project: Path, package: None) -> None:
    with pytest.raises(DslcError) as caught:
        train(configured(project, sinks), FakeSession(3), project / "build", console=io.StringIO())
    error = caught.value
    assert error.code == code and said in f"{error.message}: {error.help}", error.render()
    assert "dslc.yaml:6" in (error.place or "") or error.place == f"save.sinks.{sinks[1:].partition(':')[0]}"
    assert not (project / "runs").exists()


@pytest.mark.parametrize("name", sorted(OWN))
def test_a_missing_package_is_refused_first(
    name: str, project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = OWN[name].package
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DslcError) as caught:
        train(configured(project, f"{{{name}: true}}"), FakeSession(3), project / "build", console=io.StringIO())
    assert caught.value.code == "R205" and f"needs {package}" in caught.value.message
    assert caught.value.help == f"pip install 'dslc[{OWN[name].extra}]'" and not (project / "runs").exists()


def test_a_folder_that_a_package_wrote_is_not_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb_of_a_test").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not installed("wandb_of_a_test")
    (tmp_path / "wandb_of_a_test" / "__init__.py").touch()
    sys.path_importer_cache.clear()
    assert installed("wandb_of_a_test")


def test_w_and_b_asks_for_its_key_before_the_run(project: Path, installed: Callable[[str], Server]) -> None:
    server = installed("wandb")
    server.online = False
    with pytest.raises(DataError) as caught:
        require_sinks(configured(project, "{wandb: true}").save.sinks)
    assert "No API key" in caught.value.message and "mode: offline" in (caught.value.help or "")
    server.online = True
    for _ in range(3):
        require_sinks(load_config(project / "dslc.yaml").save.sinks)
    assert server.logins == 2, "once for a process, if it succeeded"


def test_how_sinks_are_named(project: Path) -> None:
    assert not load_config(project / "dslc.yaml").save.sinks
    config = configured(project, "{tensorboard: true, wandb: {project: digits, tags: [a, b]}, mlflow: false}")
    assert {name: each.options for name, each in config.save.sinks.items()} == {
        "tensorboard": {},
        "wandb": {"project": "digits", "tags": ["a", "b"]},
    }
    off = load_config(project / "dslc.yaml", {"save.sinks.wandb": False, "save.sinks.tensorboard": "false"})
    assert not off.save.sinks
    short = load_config(project / "dslc.yaml", {"save.tensorboard": True, "save.sinks.wandb": "{project: other}"})
    assert (
        list(short.save.sinks) == ["tensorboard", "wandb"]
        and short.save.sinks["wandb"].place == "flag save.sinks.wandb"
    )
    assert off.training_values() == short.training_values(), "sinks do not change results"


def test_the_sink_of_the_documentation(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/runs.md").read_text()
    [text] = re.findall(r"<!-- sink -->\n```python\n(.*?)```", page, re.DOTALL)
    folder = install(project / "site", "leek_sink", text, {"lines": "leek_sink:open_sink"}, group=GROUP)
    monkeypatch.syspath_prepend(str(folder))
    train(
        configured(project, "{lines: {file: of_mine.jsonl}}"), FakeSession(3), project / "build", console=io.StringIO()
    )
    *points, last = (project / "runs/toy/of_mine.jsonl").read_text().splitlines()
    assert json.loads(points[0])[:3] == ["step", 2, 0] and len(points) == 20 and last == "finished"
