"""The section ``save``: the run's folder, checkpoints, curves."""

from __future__ import annotations

from typing import Any, Final

from dslc.runtime.config.policies import best
from dslc.runtime.config.readers import Field, boolean, duration, integer, mapping, refuse, shown, text
from dslc.runtime.config.schedule import Duration
from dslc.runtime.config.yaml import Value, plain


def sink(value: Value, name: str) -> Any:
    """The options of a sink; None if it is off."""
    if isinstance(value.data, bool):
        return {} if value.data else None
    if not isinstance(value.data, dict):
        refuse(value, f"`{name}` is true, false or a mapping of options, not {shown(value)}", "write `true`")
    return {key: plain(option) for key, option in mapping(value, name).items()}


FIELDS: Final[tuple[Field, ...]] = (
    Field("save.dir", text, None, "folder of the run; default runs/NAME next to the configuration", text=True),
    Field("save.every", duration(), Duration(1, "epochs"), "how often a checkpoint is written"),
    Field("save.keep", integer(2, 10**6), 2, "number of newest checkpoints to keep (at least 2)"),
    Field("save.best", best, None, "the metric that selects the best checkpoint, which is kept and published"),
    Field("save.plot", boolean, True, "draw loss and metrics into plot.svg of the run's folder, each epoch"),
    Field("save.tensorboard", boolean, False, "write events for TensorBoard into the run's folder (extra `logs`)"),
    Field("save.sinks", sink, {}, "other destinations of loss and metrics: `{wandb: {project: digits}}`", open=True),
)
