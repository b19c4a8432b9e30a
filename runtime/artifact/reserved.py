"""What an artifact reserves: names of states and scalars of its training step, the bytes of the scalars, and names of
the kernels that check inputs.

A target for GPUs has a kernel for each dtype of an input whose values have a range. No plan launches it. A session
launches it before a run, on an input that is an array on the GPU. Its arguments are the address of the values, the
address of a u32 that becomes 1 if a value lies outside, and three i64: the number of values, the smallest permitted
value and the largest one.
"""

from __future__ import annotations

from typing import Final

#: States of kind optimizer without a parameter: the loss scale, the number of updates since its last change, and the
#: number of steps that were skipped because of it.
LOSS_SCALE, GOOD_STEPS, SKIPPED_STEPS = SCALING = ("train.loss_scale", "train.good_steps", "train.skipped_steps")
#: With a loss scale, shards add their losses, too, under this name: a step is skipped for all of them or for none.
LOSS_SUM: Final = "train.loss"
#: The beginning of the names of the states that metrics over an epoch are computed from, and the scalar of a training
#: step that is the number of steps of an epoch.
OF_EPOCH: Final = "train.epoch."
EPOCH_STEPS: Final = "epoch_steps"
#: The beginning of the names of the states that training carries from step to step; the model's name of each follows.
OF_STATE: Final = "train.state."
#: The smallest loss scale: if a step is not finite even there, the scale is not the cause.
LEAST_SCALE: Final = 1.0
STEP_BLOCK: Final = 256  # bytes at the head of the io region that hold the scalars
CHECK_THREADS: Final = 256  # of a block of a kernel that checks inputs; any number of blocks looks at all values
CHECK_ARGUMENTS: Final = (8, 8, 8, 8, 8)  # bytes of each


def check_symbol(dtype: str) -> str:
    """The name of the kernel that checks inputs of a dtype."""
    return f"outside_{dtype}"


def check_blob(dtype: str, target: str) -> str:
    """The name of the blob with its cubin for a target such as ``sm_90``."""
    return f"{check_symbol(dtype)}.{target}.cubin"
