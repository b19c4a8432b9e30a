"""A library that the compiler lists is known in every other place that must know it, and nothing else is."""

from __future__ import annotations

import pytest

from dslc.compiler.codegen.cuda.libraries.registry import LIBRARIES
from dslc.compiler.ir.choice import ALL_PROVIDERS, OWN
from dslc.compiler.report.facts import TITLES
from dslc.runtime.artifact.header_schema import FEATURES
from dslc.runtime.artifact.plan_schema import PROVIDERS
from dslc.runtime.cuda.driver_bytes import HANDLES
from dslc.runtime.cuda.libraries import registry as runtime

PLACES = {
    "the registry of the runtime: runtime/cuda/libraries/registry.py": runtime.LIBRARIES,
    "what an artifact may require: FEATURES of runtime/artifact/header_schema.py": FEATURES,
    "the field `provider`: PROVIDERS of runtime/artifact/plan_schema.py": PROVIDERS,
    "what a lock may name: ALL_PROVIDERS of compiler/ir/choice.py": ALL_PROVIDERS,
    "the bytes of a handle: HANDLES of runtime/cuda/driver_bytes.py": HANDLES,
    "the names in reports: TITLES of compiler/report/facts.py": TITLES,
}


@pytest.mark.parametrize("place", PLACES)
def test_every_place_knows_a_library(place: str) -> None:
    assert not LIBRARIES.keys() - set(PLACES[place]), place


def test_no_place_knows_a_library_that_the_compiler_lacks() -> None:
    assert runtime.LIBRARIES.keys() == HANDLES.keys() == TITLES.keys() == LIBRARIES.keys()
    assert set(ALL_PROVIDERS) == {OWN, *LIBRARIES}
    for name, library in LIBRARIES.items():
        assert library.name == name
