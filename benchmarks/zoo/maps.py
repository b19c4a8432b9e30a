"""The maps of weights from torchvision's names to those of the models of this folder, as for ``weights.load``."""

from __future__ import annotations

from typing import Final

_UNITS: Final = "{i:1|2|3|4|5|6|7}", "units.{i:0|1|2|3|4|5|6}.unit"
_CONV: Final = {"0|1": "narrow", "3|4": "depthwise", "5|6": "wide"}  # of a branch
SHUFFLENET: Final = {
    "{m:conv1|conv5}.{n:0|1}": "{m:stem|last}.{n:conv|batchnorm}",
    "stage{k}.0.branch1.{n:0|1}": "stage.{k-2}.down.left_depthwise.{n:conv|batchnorm}",
    "stage{k}.0.branch1.{n:2|3}": "stage.{k-2}.down.left.{n:conv|batchnorm}",
    "fc": "head",
    **{
        f"stage{{k}}.{old}.branch2.{{n:{at}}}": f"stage.{{k-2}}.{new}.right.{part}.{{n:conv|batchnorm}}"
        for old, new in (("0", "down"), _UNITS)
        for at, part in _CONV.items()
    },
}

REGNET: Final = {
    "stem.{n:0|1}": "stem.{n:conv|batchnorm}",
    "fc": "head",
    **{
        f"trunk_output.block{k}.block{k}-{{i}}.{old}": f"stage.{k - 1}.unit.{{i}}.{new}"
        for k in (1, 2, 3, 4)
        for old, new in (
            ("proj.{n:0|1}", "proj.{n:conv|batchnorm}"),
            ("f.{m:a|b|c}.{n:0|1}", "{m:a|b|c}.{n:conv|batchnorm}"),
            ("f.se.{m:fc1|fc2}", "se.{m:fc1|fc2}"),
        )
    },
}
SQUEEZENET: Final = {
    "features.0": "stem",
    "classifier.1": "head",
    **{
        f"features.{at}.{old}": f"fire{number}.{new}"
        for number, at in zip(range(2, 10), (3, 4, 5, 7, 8, 9, 10, 12))
        for old, new in (("squeeze", "squeeze"), ("expand1x1", "left"), ("expand3x3", "right"))
    },
}
INCEPTION: Final = {"*.bn.{p}": "*.batchnorm.{p}"}
