"""The samples of every op: ``SAMPLES`` of all modules of this folder."""

from __future__ import annotations

import importlib
from pathlib import Path

from op_samples.sample import Sample

SAMPLES: dict[str, list[Sample]] = {}
for _path in sorted(Path(__file__).parent.glob("*.py")):
    if _path.stem not in ("every", "sample"):
        for _name, _samples in importlib.import_module(f"op_samples.{_path.stem}").SAMPLES.items():
            assert _name not in SAMPLES, f"samples of {_name} stand in two files"
            SAMPLES[_name] = _samples
