"""The fakes take what the packages take: compared where the packages are installed."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest
from sinking.fake_packages import Server, modules

from dslc.runtime.sinks import mlflow

#: Sink -> what dslc calls of its package.
CALLED = {
    "wandb": ["wandb.init", "wandb.login", "wandb.Run.log", "wandb.Run.finish", "wandb.Settings"],
    "trackio": ["trackio.init", "trackio.Run.log", "trackio.Run.finish"],
    "tensorboard": [
        "tensorboardX.SummaryWriter",
        "tensorboardX.SummaryWriter.add_scalar",
        "tensorboardX.SummaryWriter.close",
    ],
    "mlflow": [
        "mlflow.entities.Metric",
        "mlflow.entities.Param",
        *(
            f"mlflow.tracking.MlflowClient.{name}"
            for name in (
                "get_experiment_by_name",
                "create_experiment",
                "search_runs",
                "create_run",
                "update_run",
                "log_batch",
                "get_metric_history",
                "set_terminated",
            )
        ),
    ],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("sink", "name"), [(sink, name) for sink, names in CALLED.items() for name in names])
def test_the_fake_takes_what_the_package_takes(sink: str, name: str) -> None:
    fake: Any = modules(sink, Server())
    real: Any = pytest.importorskip(name.partition(".")[0])
    parts = name.split(".")
    at = 1
    while ".".join(parts[: at + 1]) in fake:
        at += 1
    fake, real = fake[".".join(parts[:at])], importlib.import_module(".".join(parts[:at]))
    for part in parts[at:]:
        fake, real = getattr(fake, part), getattr(real, part)
    takes = inspect.signature(real).parameters
    wanted = inspect.signature(fake).parameters
    if name == "wandb.Settings":  # its fields are made by pydantic
        assert set(wanted) <= set(real.model_fields)
        return
    assert set(wanted) <= set(takes), f"{name} has no {sorted(set(wanted) - set(takes))}"
    for parameter in takes.values():
        needed = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        )
        assert not needed or parameter.name in wanted, f"{name} needs {parameter.name}"


@pytest.mark.filterwarnings("ignore")
def test_what_a_run_of_w_and_b_tells() -> None:
    wandb = pytest.importorskip("wandb")
    assert {"starting_step", "offline", "url"} <= set(dir(wandb.Run))
    assert issubclass(wandb.errors.UsageError, wandb.errors.Error)


def test_many_metrics_are_several_requests() -> None:
    from types import SimpleNamespace

    from dslc.runtime.sinks.sink import Point

    asked: list[int] = []
    client = SimpleNamespace(log_batch=lambda id, metrics: asked.append(len(metrics)))
    sink = mlflow.MLflow(client, "r", lambda *given: given, {"step/a": 4})
    sink.write([Point("step", step, 0, {"a": 1.0}) for step in range(2505)])
    assert asked == [1000, 1000, 500]
