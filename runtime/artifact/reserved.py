"""What an artifact reserves for its training step: names of states and scalars, and the bytes of the scalars."""

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
