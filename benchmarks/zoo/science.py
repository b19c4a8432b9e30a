"""Models of the zoo for points, proteins and molecules, and KAN."""

from __future__ import annotations

from typing import Final

from entry import CROSS, Entry

_FILES: Final = "benchmarks/zoo/models/science/"

SCIENCE: Final = (
    Entry(
        "DGCNN", "Wang et al. 2019", f"{_FILES}dgcnn:DGCNN", {"points": (("B", 3, "N"), "f32", 0)},
        {"B": 2, "N": 128, "k": 20}, {"B": 32, "N": 1024}, 12, {"p": "0"}, {"label": (("B",), "i32", 40)}, CROSS,
        None, "sgd", ("k",),
    ),
    Entry(
        "Evoformer, 2 blocks", "Jumper et al. 2021", f"{_FILES}evoformer:Evoformer",
        {"msa": (("S", "R", 49), "f32", 0), "target": (("R", 22), "f32", 0)}, {"S": 16, "R": 40, "blocks": 2},
        {"S": 128, "R": 256}, 12, {}, {"distance": (("R", "R"), "i32", 64)}, "cross_entropy(output, distance)", None,
        "adam", ("blocks",),
    ),
    Entry(
        "SchNet", "Schuett et al. 2017", f"{_FILES}schnet:SchNet",
        {"kind": (("N",), "i32", 100), "at": (("N", 3), "f32", 0), "source": (("E",), "i32", "N"),
         "sink": (("E",), "i32", "N"), "molecule": (("N",), "i32", "M")},
        {"N": 144, "E": 2448, "M": 8}, {"N": 2304, "E": 39_168, "M": 128}, 4, {}, {"energy": (("M",), "f32", 0)},
        "mse(output, energy)", None, "adam",
    ),
    Entry(
        "KAN", "Liu et al. 2024", f"{_FILES}kan:KAN", {"x": (("B", 784), "f32", 0)}, {"B": 64, "hidden": 64},
        {"B": 4096, "hidden": 256}, 8, {}, {"label": (("B",), "i32", 10)}, CROSS, None, "adamw", ("hidden",),
    ),
)  # fmt: skip
