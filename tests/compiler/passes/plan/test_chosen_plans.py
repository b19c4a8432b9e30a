"""Plans in which every node is computed by a variant or by a library's algorithm are sound, and equal each time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from places import MODELS
from thinning import thinned

from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.target import LibraryCall
from dslc.compiler.codegen.targets import target_of
from dslc.compiler.ir.choice import Choice, Choices, Measured, key_of
from dslc.compiler.ir.program import Program
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry
from dslc.runtime.artifact.instructions import Gemm, GraphOp, Kernel

ALGORITHMS = {"cublaslt": "id=66 tile=20 stages=35 splitk=1", "cudnn": "eng62_k2=5_k3=0"}


def planted(plain: Program, number: int) -> Choices:
    """For each node of an untuned program: its library's algorithm, or the variant of this number, from the end."""
    ways: dict[str, tuple[Measured, ...]] = {}
    for node, launches in plain.kernels.items():
        calls = [x.spec for x in launches if isinstance(x.spec, LibraryCall)]
        names = target_of(plain.target).variants(node)
        own = Choice("own", names[-1 - number % len(names)])
        choice = Choice(calls[0].library, ALGORITHMS[calls[0].library], 1000) if calls else own
        ways[key_of(node)] = (Measured(choice, 1e-5),)
    return Choices(ways)


@pytest.mark.parametrize("provider", ["own", "vendor"])
@pytest.mark.parametrize("name", thinned(("lenet", "vae", "unet"), 3))
def test_a_plan_of_chosen_ways(name: str, provider: str) -> None:
    checked = check_file(f"{MODELS / name}.nn")
    sizes = {dim.name: dim.default for dim in checked.dims}
    options = Options(target="sm_90", provider=provider, mirror="never", streams=1)
    plain, _ = compile_entry(checked, "train_step", sizes, options)
    symbols = {i.symbol for i in plan_of(plain).instructions if isinstance(i, Kernel)}
    choices = planted(plain, 0)
    first, second = (compile_entry(checked, "train_step", sizes, options, choices=choices)[0] for _ in range(2))
    plan = plan_of(first)
    assert plan == plan_of(second) != plan_of(plain)
    assert {i.symbol for i in plan.instructions if isinstance(i, Kernel)} != symbols
    called = [i for i in plan.instructions if isinstance(i, Gemm | GraphOp)]
    assert (provider == "vendor") == bool(called)
    for call in called:
        if isinstance(call, Gemm):
            assert call.algorithm == ALGORITHMS["cublaslt"].encode()
        else:
            assert (call.engine, call.knobs) == (62, ((2, 5), (3, 0)))
        assert call.workspace is not None and plan.buffers[call.workspace].bytes >= 1000 + 256
    untouched = replace(choices, ways={f"{key} ": ways for key, ways in choices.ways.items()})
    same, _ = compile_entry(checked, "train_step", sizes, options, choices=untouched)
    assert plan_of(same) == plan_of(plain)
