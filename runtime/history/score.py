"""The score of a run's weights: the value of one metric on known evaluation data.

It is stored in the weights file itself, as the note ``dslc.run``, so weights and score cannot be separated. Two scores
are comparable if they are values of the same metric on the same evaluation data.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from dslc.base.errors import ArtifactError
from dslc.base.json_size import parsed
from dslc.runtime.config.policies import Best
from dslc.runtime.weights import safetensors_file as tensorfile
from dslc.runtime.weights.notes import RUN, to_metadata

_LONGEST: Final = 1 << 16  # characters of a score


@dataclass(frozen=True)
class Score:
    """``value`` is None if the weights were not evaluated. ``data``: SHA-256 of ``identity`` in evaluation_data.py."""

    run: str
    step: int
    metric: str
    highest: bool
    value: float | None
    data: str

    def encode(self) -> str:
        value = None if self.value is None else self.value.hex()
        return json.dumps({**asdict(self), "value": value}, sort_keys=True)

    @classmethod
    def decode(cls, text: str) -> Score:
        """Parses the text of ``encode``. ValueError for any other text."""
        data = parsed(text, _LONGEST)
        types: dict[str, tuple[type, ...]] = {
            "run": (str,), "step": (int,), "metric": (str,), "highest": (bool,), "value": (str, type(None)),
            "data": (str,),
        }  # fmt: skip
        if not isinstance(data, dict) or not {f.name for f in fields(cls)} <= set(data):
            raise ValueError("it does not have the fields of a score")
        if any(type(data[name]) not in kinds for name, kinds in types.items()) or data["step"] < 0:
            raise ValueError("one of its fields has a wrong type")
        value = None if data["value"] is None else float.fromhex(data["value"])
        return cls(**{name: data[name] for name in types if name != "value"}, value=value)

    def as_json(self) -> dict[str, Any]:
        """The score for a record or ``--json``; a value that JSON lacks is a text."""
        finite = self.value is None or math.isfinite(self.value)
        return {**asdict(self), "value": self.value if finite else str(self.value)}

    def worse_because(self, published: Score) -> str | None:
        """Why these weights do not take the place of the published ones by themselves; None if they are better."""
        there = f"the published {published.shown} of run {published.run}"
        if self.value is None:
            return "they were not evaluated"
        if published.value is None:
            return "the published weights were not evaluated"
        if (self.metric, self.highest) != (published.metric, published.highest):
            return f"{self.shown} cannot be compared with {there}"
        if self.data != published.data:
            return f"{there} is from other evaluation data"
        if published.value == published.value and not Best(self.metric, self.highest).better(
            self.value, published.value
        ):
            return f"{self.shown} is not better than {there}"
        return None if self.value == self.value else f"{self.shown} is not a number"

    @property
    def shown(self) -> str:
        """``accuracy 0.9688``"""
        return f"{self.metric} {'not known' if self.value is None else format(self.value, '.4g')}"


def score_of(path: Path) -> Score | None:
    """The score in a weights file, whose tensors are not read; None if it has none.

    Raises WeightsMissing R304, ArtifactError R306 if the file or its score is damaged.
    """
    metadata = tensorfile.read_metadata(path)
    text = metadata.get(RUN)
    if text is None:
        return None
    digest = f"{RUN}.sha256"
    try:
        if metadata.get(digest) != to_metadata({RUN: text})[digest]:
            raise ValueError("it does not match its digest")
        return Score.decode(text)
    except (ValueError, OverflowError) as error:
        raise ArtifactError(
            "R306", f"its score is damaged: {error}", place=str(path), help="publish another run: `dslc publish RUN`"
        ) from error
