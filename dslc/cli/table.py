"""The commands: name, section of ``dslc --help``, one line of help. The modules are in ``dslc.cli.commands``.

The help lines are repeated here so that ``dslc --help`` imports no command; a test compares them with the commands'
own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Entry:
    """``module`` is in dslc.cli.commands and defines ``command``."""

    section: str
    module: str
    summary: str


COMMANDS: Final[dict[str, Entry]] = {
    "new": Entry("Write", "new", "Make a project that trains at once."),
    "check": Entry("Write", "check", "Check models: names, types, shapes, train sections."),
    "fmt": Entry("Write", "fmt", "Put source files into the canonical layout."),
    "explain": Entry("Write", "explain", "Print the page of an error code."),
    "ops": Entry("Write", "ops", "List the language's functions, or print the page of one."),
    "build": Entry("Build", "build", "Compile a model into an artifact that Python can import."),
    "verify": Entry("Build", "verify", "Verify an artifact's digests, structure and plans."),
    "tune": Entry("Build", "tune", "Measure on a GPU how each part of a model is computed best."),
    "warm": Entry("Build", "warm", "Let cuBLASLt and cuDNN choose for this GPU; store the choices."),
    "lock": Entry("Build", "lock", "Show, check or compare the measurements in dslc.lock."),
    "train": Entry("Run", "train", "Train the model of ./dslc.yaml; build it first if needed."),
    "runs": Entry("Run", "history.runs", "List the runs of a project, compare some, or show one."),
    "sweep": Entry("Run", "history.sweep", "Train with each of several values, and compare the results."),
    "publish": Entry("Run", "history.publish", "Publish the weights of a run in place of the published ones."),
    "eval": Entry("Run", "evaluate", "Compute loss and metrics over the evaluation data."),
    "predict": Entry("Run", "predict", "Run a model on data in files, or let it write text."),
    "bench": Entry("Run", "bench", "Time a model's steps, and each kernel against the roofline."),
    "show": Entry("Look", "show", "Print a model's graph, as checked or after a pass."),
    "why": Entry("Look", "why", "Explain what the compiler did with a node or a line."),
    "info": Entry("Look", "info", "Show what an artifact holds."),
    "mem": Entry("Look", "mem", "Show planned memory; for a model, predict it by size."),
    "weights": Entry("Look", "weights", "List, compare or convert files of weights, or propose a map."),
    "cache": Entry("Look", "cache", "Show or clear the cache of kernels, builds and encoded data."),
    "doctor": Entry("Look", "doctor", "Show what is installed here, and what dslc can do with it."),
    "config": Entry("Look", "config", "Print each value of the configuration and its origin."),
}

SECTIONS: Final = ("Write", "Build", "Run", "Look")
