"""The tables that dslc ships: which blocks they hold, for which builds they count, and that each block is obeyed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import pytest
from locks import block, way
from places import ROOT

from dslc.cli.locks.find import with_lock
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.targets import ARCHITECTURES
from dslc.compiler.ir.choice import NO_CHOICES, Choice, Measured
from dslc.compiler.lock.model import Lock
from dslc.compiler.lock.table import shipped, table_for, worth_shipping
from dslc.compiler.options import Options
from dslc.tune.problems import problems

TILES = Choice("own", "tile=64x64x64/32x32 stages=4 slices=1 split=1")


@dataclass(frozen=True)
class Case:
    """A build whose problems were measured."""

    file: str
    batch: int | None = None
    model: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)

    def problem_keys(self, *, measured: bool) -> set[str]:
        """Of the problems that a build computes or compares: by the tables, or one that obeys no measurement."""
        checked = check_file(str(ROOT / self.file), self.model, self.arguments)
        sizes = {} if self.batch is None else {each: {"B": (self.batch,)} for each in ("train", "eval")}
        options = with_lock(Options(target="sm_90", sizes=sizes, **self.options), ROOT / "tests")
        obeyed = options.tuned["sm_90"].choices if measured else NO_CHOICES
        return {each.key for each in problems(checked, options, "sm_90", obeyed)}


BF16 = {"precision": "bf16", "provider": "own"}
OWN = {"provider": "own"}
CASES = (
    Case("examples/models/vit.nn", 64, options=BF16),
    Case("tests/models/gpt2.nn", 16, options=OWN, arguments={"p": "0.0"}),
    Case("tests/models/resnet50.nn", 32, options=OWN),
    Case("tests/models/unet.nn", 8, options=BF16),
    Case("benchmarks/unrolled_lstm.nn", options=BF16),
    Case("examples/models/bert.nn", model="BertClassifier", options=BF16),
    Case("examples/models/mobilenet.nn", model="MobileNetV2", options=BF16),
    Case("examples/models/convnext.nn", options=BF16),
    Case("examples/digits/lenet.nn", options=OWN),
    Case("benchmarks/mlp.nn", options=OWN),
    Case("examples/charlm/charlm.nn", options=OWN),
    Case("examples/resnet/resnet.nn", model="ResNet18", options=OWN),
    Case("examples/unet/unet.nn", options=OWN),
    Case("examples/inception/inception.nn", options=OWN),
    Case("examples/vae/vae.nn", options=OWN),
)


def test_what_a_default_kernel_or_a_library_wins_is_not_shipped() -> None:
    faster, slower = Measured(TILES, 1e-6), way(2e-6)
    library = Measured(Choice("cublaslt", "id=66"), 1e-6)
    won = replace(block("won", ways=(faster, slower)), default=slower)
    others = (
        replace(block("default", ways=(slower,)), default=slower),
        replace(block("library", ways=(library, slower)), default=slower),
        replace(block("unknown", ways=(faster,)), default=None),
    )
    assert worth_shipping((won, *others)) == Lock((won,))


def test_a_build_with_libraries_takes_from_the_tables_what_no_library_computes() -> None:
    assert table_for(vendor=False) is shipped()
    left = {each.key for each in table_for(vendor=True).blocks}
    assert {key.partition(" ")[0] for key in left} >= {"layernorm", "sum_to"}
    for each in shipped().blocks:
        assert (each.key in left) == (not each.key.startswith(("matmul", "conv", "contraction"))), each.key
    for provider in ("own", "vendor"):
        found = with_lock(Options(target="sm_90", provider=provider), ROOT / "tests").tuned["sm_90"]
        assert {*found.blocks} == {each.key for each in table_for(vendor=provider == "vendor").blocks}


def test_a_shipped_block_is_one_that_a_build_would_miss() -> None:
    assert worth_shipping(shipped().blocks) == shipped()
    assert {each.target for each in shipped().blocks} <= {*ARCHITECTURES}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_shipped_block_is_a_problem_of_a_measured_model_and_names_a_kernel_that_there_is() -> None:
    """A build stops with E0609 if a measured choice computes nothing."""
    unused = {each.key for each in shipped().blocks}
    for measured, case in product((True, False), CASES):
        if unused:
            unused -= case.problem_keys(measured=measured)
    assert not unused, f"measure again with benchmarks/shipped_table.py: {sorted(unused)[:5]}"
