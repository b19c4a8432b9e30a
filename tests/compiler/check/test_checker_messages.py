"""Every message of the checker, as golden text: the program first, then what the user sees."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from sources.bad_programs import BAD
from sources.in_memory import files

from dslc.compiler.check.model import check_program
from dslc.dsl.diagnostics import CompileError


@pytest.mark.parametrize("name", sorted(BAD))
def test_message(name: str, golden: Callable[[str, str], None], allowed: Callable[[float, float], bool]) -> None:
    text, codes = BAD[name]
    started = time.process_time()
    with pytest.raises(CompileError) as caught:
        check_program(files(text))
    assert [d.code for d in caught.value.diagnostics] == codes, caught.value.render()
    assert allowed(time.process_time() - started, 2), "a refusal takes at most 2 s"
    shown = text if len(text) < 1500 else text[:600] + "...\n"
    golden(f"diagnostics/check/{name}.txt", f"{shown}\n{caught.value.render()}\n")


def test_enough_messages() -> None:
    assert len(BAD) >= 50
