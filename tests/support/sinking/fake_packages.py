"""wandb, trackio, mlflow and tensorboardX as far as dslc uses them, with servers that are lists in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


@dataclass
class Server:
    """What arrived, by run: points as (name, step, value), the states it had, its configuration."""

    points: dict[str, list[tuple[str, int, float]]] = field(default_factory=dict)
    states: dict[str, list[Any]] = field(default_factory=dict)
    config: dict[str, dict[str, Any]] = field(default_factory=dict)
    given: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[int] = field(default_factory=list)
    online: bool = True
    logins: int = 0

    @property
    def only(self) -> list[tuple[str, int, float]]:
        """The points of the only run."""
        [found] = self.points.values()
        return found


class _Error(Exception):
    pass


class _UsageError(_Error):
    pass


def wandb(server: Server) -> Any:
    class Settings:
        def __init__(self, *, silent: bool, console: str, disable_git: bool, disable_code: bool) -> None:
            assert silent and console == "off", "wandb must leave the terminal alone"

    class Run:
        def __init__(self, id: str) -> None:
            self.id, self.offline, self.url = id, not server.online, f"https://wandb.example/{id}"
            self.starting_step = max((step for _, step, _ in server.points[id]), default=-1) + 1 if server.online else 0

        def log(self, data: dict[str, Any], step: int | None = None) -> None:
            assert step is not None and all(isinstance(value, int | float) for value in data.values())
            server.points[self.id] += [(name, step, value) for name, value in data.items()]

        def finish(self, exit_code: int | None = None) -> None:
            server.states[self.id].append(exit_code)

    def init(
        entity: str | None = None,
        project: str | None = None,
        dir: str | None = None,
        id: str | None = None,
        name: str | None = None,
        notes: str | None = None,
        tags: Sequence[str] | None = None,
        config: dict[str, Any] | None = None,
        allow_val_change: bool | None = None,
        group: str | None = None,
        mode: str | None = None,
        reinit: str | None = None,
        resume: str | None = None,
        settings: Any = None,
    ) -> Run:
        assert id and not set(id) & set("/\\#?%:") and resume == "allow" and reinit == "create_new"
        server.points.setdefault(id, [])
        server.states.setdefault(id, []).append("running")
        server.given[id] = {"project": project, "name": name, "dir": dir, "tags": tags, "mode": mode}
        server.config[id] = dict(config or {})
        return Run(id)

    def login() -> bool:
        server.logins += 1
        if not server.online:
            raise _UsageError("No API key configured.")
        return True

    errors = SimpleNamespace(Error=_Error, UsageError=_UsageError)
    return _module("wandb", init=init, login=login, Run=Run, Settings=Settings, errors=errors)


def trackio(server: Server) -> Any:
    class Run:
        def __init__(self, name: str) -> None:
            self.name = name

        def log(self, metrics: dict[str, Any], step: int | None = None) -> None:
            assert step is not None
            server.points[self.name] += [(key, step, value) for key, value in metrics.items()]

        def finish(self) -> None:
            server.states[self.name].append("finished")

    def init(
        project: str,
        name: str | None = None,
        group: str | None = None,
        config: dict[str, Any] | None = None,
        resume: str = "never",
        embed: bool = True,
    ) -> Run:
        assert name is not None and resume == "allow" and not embed
        print(f"* Trackio project initialized: {project}")
        server.points.setdefault(name, [])
        server.states.setdefault(name, [])
        return Run(name)

    return _module("trackio", init=init, Run=Run)


def mlflow(server: Server) -> dict[str, Any]:
    """The modules ``mlflow``, ``mlflow.tracking`` and ``mlflow.entities``."""
    experiments: dict[str, str] = {}
    runs: dict[str, Any] = {}

    @dataclass
    class Metric:
        key: str
        value: float
        timestamp: int
        step: int

    @dataclass
    class Param:
        key: str
        value: str

    class MlflowClient:
        def get_experiment_by_name(self, name: str) -> Any:
            return SimpleNamespace(experiment_id=experiments[name]) if name in experiments else None

        def create_experiment(self, name: str) -> str:
            return experiments.setdefault(name, str(len(experiments)))

        def search_runs(self, experiment_ids: list[str], filter_string: str = "", max_results: int = 1000) -> list[Any]:
            wanted = filter_string.removeprefix("tags.`dslc.id` = '").removesuffix("'")
            return [run for run in runs.values() if run.tags["dslc.id"] == wanted][:max_results]

        def create_run(
            self,
            experiment_id: str,
            start_time: int | None = None,
            tags: dict[str, Any] | None = None,
            run_name: str | None = None,
        ) -> Any:
            id = f"run{len(runs)}"
            info, data = SimpleNamespace(run_id=id, run_name=run_name), SimpleNamespace(params={}, metrics={})
            runs[id] = SimpleNamespace(info=info, data=data, tags=dict(tags or {}))
            server.points[id], server.states[id], server.config[id] = [], ["RUNNING"], data.params
            server.given[id] = {"name": run_name, "tags": tags, "experiment": experiment_id}
            return runs[id]

        def update_run(self, run_id: str, status: str | None = None) -> None:
            server.states[run_id].append(status)

        def log_batch(self, run_id: str, metrics: Sequence[Metric] = (), params: Sequence[Param] = ()) -> None:
            assert len(metrics) <= 1000 and len(params) <= 100
            if metrics:
                server.requests.append(len(metrics))
            for each in metrics:
                runs[run_id].data.metrics[each.key] = each.value
                server.points[run_id].append((each.key, each.step, each.value))
            for param in params:
                assert runs[run_id].data.params.setdefault(param.key, param.value) == param.value

        def get_metric_history(self, run_id: str, key: str) -> list[Any]:
            return [SimpleNamespace(step=step) for name, step, _ in server.points[run_id] if name == key]

        def set_terminated(self, run_id: str, status: str | None = None) -> None:
            server.states[run_id].append(status)

    return {
        "mlflow": _module("mlflow"),
        "mlflow.tracking": _module("mlflow.tracking", MlflowClient=MlflowClient),
        "mlflow.entities": _module("mlflow.entities", Metric=Metric, Param=Param),
    }


def tensorboard(server: Server) -> Any:
    class SummaryWriter:
        def __init__(self, logdir: str, purge_step: int | None = None) -> None:
            Path(logdir).mkdir(exist_ok=True)
            self.points = server.points.setdefault("run", [])
            if purge_step is not None:
                self.points[:] = [point for point in self.points if point[1] < purge_step]

        def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
            assert global_step is not None
            self.points.append((tag, global_step, scalar_value))

        def close(self) -> None:
            server.states.setdefault("run", []).append("closed")

    return _module("tensorboardX", SummaryWriter=SummaryWriter)


def modules(name: str, server: Server) -> Mapping[str, Any]:
    """What ``sys.modules`` holds if the package of a sink is installed."""
    if name == "mlflow":
        return mlflow(server)
    make = {"wandb": wandb, "trackio": trackio, "tensorboard": tensorboard}[name]
    made = make(server)
    return {made.__name__: made}


def _module(name: str, **contents: Any) -> Any:
    found = ModuleType(name)
    vars(found).update(contents)
    return found
