"""What to write in dslc.yaml for keys of other tools. The keys are in lower case, without underscores and dashes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SIZE: Final = "a batch is as large as the dim that counts its rows: `build: {sizes: {train: {B: 64}}}`"
_SECTION: Final = "this belongs to the train section of the model: `{}`"

#: The help for each key.
KEYS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("batchsize", "batch", "bs", "trainbatchsize", "perdevicetrainbatchsize"), _SIZE),
    **dict.fromkeys(("learningrate", "baselearningrate"), "write `train: {lr: 0.01}`"),
    **dict.fromkeys(("numepochs", "nepochs", "maxepochs", "numtrainepochs"), "write `train: {epochs: 10}`"),
    **dict.fromkeys(("optimizer", "optimiser", "optim"), _SECTION.format("optimizer = adamw(lr=0.001)")),
    **dict.fromkeys(("loss", "lossfunction", "criterion"), _SECTION.format("loss = cross_entropy(output, label)")),
    **dict.fromkeys(("metric", "metrics"), _SECTION.format("metrics { accuracy = accuracy(output, label) }")),
    **dict.fromkeys(("weightdecay", "momentum", "betas"), _SECTION.format("optimizer = sgd(lr=0.1, momentum=0.9)")),
    **dict.fromkeys(("gradclip", "clipgradnorm", "maxgradnorm", "gradientclipval", "clipnorm"),
                    _SECTION.format("optimizer = adamw(lr=0.001, clip_norm=1.0)")),
    **dict.fromkeys(("accumulate", "accumulategradbatches", "gradientaccumulationsteps"),
                    _SECTION.format("accumulate = 4")),
    **dict.fromkeys(("scheduler", "lrscheduler", "lrschedule", "warmupsteps", "warmup"),
                    "write `train: {lr: {cosine: {warmup: 1 epoch}}}`"),
    **dict.fromkeys(("numworkers", "nworkers", "dataloadernumworkers"), "write `data: {workers: 4}`"),
    **dict.fromkeys(("val", "valid", "validation", "dev", "test", "evaluation"), "write `data: {eval: {...}}`"),
    **dict.fromkeys(("validationsplit", "valsplit", "testsize", "testsplit"), "write `data: {split: 0.2}`"),
    **dict.fromkeys(("transform", "transforms", "augmentation", "augmentations"),
                    "write `data: {augment: {image: [{flip: 0.5}]}}`"),
    **dict.fromkeys(("device", "accelerator", "gpus"),
                    "write `build: {target: sm_90}` for a GPU; `dslc train --device gpu` chooses one of this machine"),
    **dict.fromkeys(("fp16", "bf16", "amp", "mixedprecision"), "write `build: {precision: bf16}`"),
    **dict.fromkeys(("earlystopping", "patience"), "write `train: {stop: {metric: loss, patience: 5}}`"),
    **dict.fromkeys(("randomseed", "randomstate", "manualseed"), "write `train: {seed: 0}`"),
    **dict.fromkeys(("outputdir", "outdir", "logdir", "checkpointdir", "savedir"), "write `save: {dir: runs/first}`"),
    **dict.fromkeys(("pretrained", "checkpoint", "initfrom", "finetunefrom"), "write `start: {weights: FILE}`"),
    **dict.fromkeys(("resume", "resumefrom", "resumefromcheckpoint"), "`dslc train --resume` continues a run"),
}  # fmt: skip


def key_hint(key: str) -> str | None:
    """The help for a key of another tool."""
    return KEYS.get(key.lower().replace("_", "").replace("-", ""))
