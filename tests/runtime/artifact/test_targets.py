"""Which target of an artifact a GPU takes."""

from __future__ import annotations

import pytest

from dslc.runtime.artifact.targets import Choice, capability_of, choose_target


@pytest.mark.parametrize(
    ("targets", "capability", "expected"),
    [
        (["cpu", "sm_90"], (9, 0), Choice("sm_90", False)),
        (["sm_80", "sm_86", "sm_90"], (8, 6), Choice("sm_86", False)),
        (["sm_80", "sm_89"], (8, 6), Choice("sm_80", False)),  # of the same family, and older
        (["sm_80", "sm_86"], (8, 9), Choice("sm_86", False)),  # the newest that it runs
        (["sm_86"], (8, 0), None),  # newer than the GPU
        (["sm_90"], (10, 0), Choice("sm_90", True)),
        (["sm_75", "sm_80"], (12, 0), Choice("sm_80", True)),
        (["sm_90a"], (9, 0), Choice("sm_90a", False)),
        (["sm_90a", "sm_90"], (9, 0), Choice("sm_90a", False)),  # its own, with all that it has
        (["sm_90a"], (10, 0), None),  # neither code nor PTX of one architecture alone runs elsewhere
        (["sm_90a", "sm_80"], (10, 0), Choice("sm_80", True)),
        (["sm_120"], (9, 0), None),
        (["sm_100"], (10, 3), Choice("sm_100", False)),
        (["cpu"], (9, 0), None),
        ([], (9, 0), None),
    ],
)
def test_choice(targets: list[str], capability: tuple[int, int], expected: Choice | None) -> None:
    assert choose_target(targets, capability) == expected
    assert choose_target(reversed(targets), capability) == expected


def test_capability() -> None:
    assert [capability_of(t) for t in ("sm_80", "sm_90a", "sm_120", "cpu", "sm_9", "sm_90b", "xsm_90")] == [
        (8, 0), (9, 0), (12, 0), None, None, None, None,
    ]  # fmt: skip
