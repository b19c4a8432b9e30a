"""Attributes of ops as JSON data."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dslc.base.canonical import dumps, loads
from dslc.base.errors import ArtifactError
from dslc.runtime.artifact.attributes import attribute, plain_float


@pytest.mark.parametrize("value", [math.inf, -math.inf, 0.0, -0.0, 1e308, 0.1])
def test_a_float_is_the_same_after_the_plan(value: float) -> None:
    found = attribute(loads(dumps([plain_float(value)]), place="plan"), "plan")
    assert found == [value] and math.copysign(1, found[0]) == math.copysign(1, value)


def test_nan_is_nan_after_the_plan() -> None:
    assert math.isnan(attribute(loads(dumps(plain_float(math.nan)), place="plan"), "plan"))


def test_other_data_stay_as_they_are() -> None:
    for data in (3, "reflect", True, [1, [2, "f32"]], "inf"):
        assert attribute(data, "plan") == data


@pytest.mark.parametrize("data", [{}, {"float": "1"}, {"float": 1.0}, {"float": ["inf"]}, {"float": "inf", "x": 1}])
def test_an_object_that_is_no_number_is_refused(data: Any) -> None:
    for given in (data, [1, data]):
        with pytest.raises(ArtifactError) as caught:
            attribute(given, "net.dslc: instruction 3")
        assert caught.value.code == "R301" and caught.value.place == "net.dslc: instruction 3"
