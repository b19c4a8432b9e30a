"""The sums of a tile stay in registers while its products are added."""

from __future__ import annotations

import re

import pytest

from dslc.compiler.codegen.cpu.contraction.conv import Conv
from dslc.compiler.codegen.cpu.contraction.kernel import Contraction
from dslc.compiler.codegen.cpu.contraction.layouts import Window
from dslc.compiler.codegen.cpu.object import compile as objects
from dslc.compiler.ir.types import DType

_SPILL = re.compile(r"v?mov\w+\s+%[xyz]mm\d+, -?\d*\(%rsp\)|st[rp]\s+q\d+,.* \[sp")


def contraction(axes: int, gradient: bool) -> Contraction:
    spec = Conv(DType.F32, 1, 1, 16, 64, (Window(32, 3, 1, 1, 1),) * axes)
    steps = spec.input_gradient() if gradient else spec.forward()
    assert steps is not None
    [found] = [step.kernel for step in steps.steps if isinstance(step.kernel, Contraction)]
    return found


@pytest.mark.parametrize("level", ["x86_64_v4", "x86_64_v3", "armv8_2"])
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("axes", [2, 3])
def test_a_convolution_stores_no_register_on_the_stack(axes: int, gradient: bool, level: str) -> None:
    ir = objects.texts_of("k", contraction(axes, gradient).code, [level])[level]
    text = objects._machine(level).emit_assembly(objects._optimised(ir))
    assert re.search(r"vfmadd|fmla", text)
    assert not _SPILL.search(text)


def test_the_steps_of_a_gradient_along_a_line_are_constants() -> None:
    code = contraction(3, True).code
    assert -1 in (code.inner[-1].a, code.inner[-1].b)


def test_lines_of_a_panel_are_brought_near_before_they_are_read() -> None:
    def asks(last: bool) -> tuple[bool, bool]:
        steps = Conv(DType.F32, 1, 1, 64, 64, (Window(6, 1, 1, 0, 1),) * 2, last).forward()
        assert steps is not None
        [kernel] = [step.kernel for step in steps.steps if isinstance(step.kernel, Contraction)]
        text = objects.texts_of("k", kernel.code, ["x86_64_v4"])["x86_64_v4"]
        machine = objects._machine("x86_64_v4")
        return kernel.panel > 0, "prefetcht0" in machine.emit_assembly(objects._optimised(text))

    assert asks(True) == (True, True)
    assert asks(False) == (False, False)
