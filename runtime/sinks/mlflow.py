"""MLflow: metrics ``KIND/NAME`` and the configuration as parameters, on the server of ``MLFLOW_TRACKING_URI``."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dslc.runtime.sinks.sink import About, Point

_TAG: Final = "dslc.id"
_METRICS: Final = 1000  # of one request, by MLflow's limits
_PARAMETERS: Final = 100
_LONGEST: Final = 500  # characters of a parameter that every MLflow server takes
_STATES: Final = {"finished": "FINISHED", "stopped": "KILLED"}  # all others have failed


class MLflow:
    """MLflow keeps NaN. Infinities are left out: a database would hold the largest float instead."""

    def __init__(self, client: Any, run_id: str, metric: Any, last: Mapping[str, int]) -> None:
        """``last``: the newest step of each metric that the server has."""
        self._client, self._run_id, self._metric, self._last = client, run_id, metric, last

    def write(self, points: Sequence[Point]) -> None:
        now = _now()
        found = [
            self._metric(key, value, now, point.step)
            for point in points
            for key, value in ((f"{point.kind}/{name}", value) for name, value in point.values.items())
            if not math.isinf(value) and point.step > self._last.get(key, -1)
        ]
        for at in range(0, len(found), _METRICS):
            self._client.log_batch(self._run_id, metrics=found[at : at + _METRICS])

    def close(self, state: str, exit_code: int) -> None:
        self._client.set_terminated(self._run_id, _STATES.get(state, "FAILED"))


def open_sink(
    about: About, *, experiment: str | None = None, name: str | None = None, tags: Mapping[str, str] | None = None
) -> MLflow:
    """Continue the run with the tag ``dslc.id``, or create one."""
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    folder = _experiment(client, experiment or about.model)
    there = client.search_runs([folder], filter_string=f"tags.`{_TAG}` = '{about.id}'", max_results=1)
    if there:
        run = there[0]
        client.update_run(run.info.run_id, status="RUNNING")
    else:
        known = {_TAG: about.id, "dslc.model": about.model, "dslc.artifact": about.artifact}
        run = client.create_run(folder, start_time=_now(), tags={**(tags or {}), **known}, run_name=name or about.name)
    _parameters(client, run, about.config)
    last = {}
    for key in run.data.metrics:
        last[key] = max(each.step for each in client.get_metric_history(run.info.run_id, key))
    return MLflow(client, run.info.run_id, Metric, last)


def _experiment(client: Any, name: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    try:
        return str(client.create_experiment(name))
    except Exception:  # another process may have created it meanwhile; else this raises again
        found = client.get_experiment_by_name(name)
        if found is None:
            raise
        return str(found.experiment_id)


def _parameters(client: Any, run: Any, config: Mapping[str, Any]) -> None:
    """Parameters that the run lacks; MLflow lets none change."""
    from mlflow.entities import Param

    new = [Param(key, str(value)[:_LONGEST]) for key, value in config.items() if key not in run.data.params]
    for at in range(0, len(new), _PARAMETERS):
        client.log_batch(run.info.run_id, params=new[at : at + _PARAMETERS])


def _now() -> int:
    return int(time.time() * 1000)
