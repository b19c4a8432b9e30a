"""Work memory of the examples' training steps, compared with the maximum of live bytes."""

from __future__ import annotations

from typing import Any

import pytest
from places import EXAMPLES

from dslc.cli.build_options import options_of
from dslc.cli.views.forecast import all_sizes
from dslc.compiler.check.model import check_file
from dslc.compiler.cost import machine_of
from dslc.compiler.passes.plan.stream_timeline import finish
from dslc.compiler.pipeline import foresee

pytestmark = pytest.mark.slow

MODELS = (
    "charlm/charlm.nn", "digits/lenet.nn", "inception/inception.nn", "mlp/mlp.nn", "resnet/resnet.nn:ResNet18",
    "resnet/resnet.nn:ResNet50", "unet/unet.nn", "vae/vae.nn",
)  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "cpu": {"target": "cpu"},
    "own": {"target": "sm_90", "providers": "own", "streams": 1},
    "own, 2 streams": {"target": "sm_90", "providers": "own", "streams": 2},
    "own, streams by the model": {"target": "sm_90", "providers": "own", "streams": "auto"},
    "vendor": {"target": "sm_90", "providers": "vendor", "streams": 1},
    "vendor, bf16": {"target": "sm_90", "providers": "vendor", "precision": "bf16", "streams": 1},
    "vendor, 2 streams": {"target": "sm_90", "providers": "vendor", "streams": 2},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("model", MODELS)
def test_examples_are_planned_near_the_bound(model: str, options: str) -> None:
    checked = check_file(f"{EXAMPLES}/{model}")
    [sizes] = all_sizes(checked, {})
    [program] = foresee(checked, "train_step", sizes, options_of(OPTIONS[options]), ("auto",))
    assert program.memory is not None
    work, bound = program.memory.work_bytes, program.memory.lower_bound
    print(f"{work:,} of {bound:,}: {work / bound:.4f}")
    assert bound <= work <= 1.02 * bound


def test_a_budget_takes_no_more_time_than_a_plan_that_fits_into_it() -> None:
    """Layers that are alike, where the estimate of bytes is wrong by a step: fewer bytes than asked for are no aim."""
    checked = check_file(EXAMPLES.parent / "benchmarks" / "attention_stack.nn")
    options = options_of({"target": "sm_90", "providers": "vendor", "precision": "bf16"})
    found = foresee(checked, "train_step", {"B": 32}, options, ("auto", 6_055_000_000))
    free, asked = (p.mirrored for p in found)
    assert free is not None and asked is not None
    assert max(free.bytes_after, asked.bytes_after) < 5_030_000_000 and free.share < 0.03
    ends = [finish(p, machine_of("sm_90", "vendor")) for p in found]  # on streams, where they fit
    assert ends[1] < 1.001 * ends[0]  # what is recomputed is chosen by the sum of times, which streams change a little
