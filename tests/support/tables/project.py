"""A project of the fake session whose data are tables with gaps and categories."""

from __future__ import annotations

from pathlib import Path

from tables.written import WRITERS, random_table

YAML = """\
model: toy.nn
data:
  train: {x: "train.NAME:area,rooms,garden", label: train.NAME:kind}
  EVAL
  columns:
    area: {missing: median, missing_flag: true, scale: standard}
    rooms: {missing: mean, scale: minmax}
    garden: {missing: 0}
    kind: {categories: index}
train: {epochs: 4, seed: 3}
save: {dir: runs/toy, every: 2 steps, keep: 9}
"""
FILE, SPLIT = "eval: {x: 'eval.NAME:area,rooms,garden', label: eval.NAME:kind}", "split: 0.3"


def project(folder: Path, name: str = "csv", evaluation: str = FILE) -> Path:
    """The folder, with dslc.yaml and the files of one format: 40 rows to train on, 20 steps."""
    write = WRITERS[f"t.{name}"]
    write(folder / f"train.{name}", random_table(1, 40))
    write(folder / f"eval.{name}", {k: v[:11] for k, v in random_table(2, 40).items()})
    (folder / "dslc.yaml").write_text(YAML.replace("EVAL", evaluation).replace("NAME", name))
    return folder
