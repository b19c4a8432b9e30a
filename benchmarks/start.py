"""Median seconds of ten starts: importing dslc, ``dslc --help``, checks and warm builds, first steps of training.

python benchmarks/start.py

Prints processor time next to wall time; on a busy machine only the former is meaningful.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
DIGITS = EXAMPLES / "digits"
FIRST_STEP = """
import sys
import numpy as np
import dslc
with dslc.load(sys.argv[1], weights="init") as session:
    session.train_step(image=np.zeros((64, 1, 28, 28), np.float32), label=np.zeros(64, np.int32))
"""
TIMES = 10


def commands(folder: Path) -> dict[str, tuple[str, ...]]:
    """What is started, by name; builds go to ``folder``."""
    build = ("-m", "dslc", "build", str(DIGITS / "lenet.nn"), "-o", str(folder))
    shutil.copytree(DIGITS, folder / "digits", ignore=shutil.ignore_patterns("build", "runs"))
    train = ("-m", "dslc", "train", "--config", str(folder / "digits" / "dslc.yaml"), "--overfit-one-batch")
    return {
        "python -c pass": ("-c", "pass"),
        "import dslc": ("-c", "import dslc"),
        "dslc --help": ("-m", "dslc", "--help"),
        "dslc check resnet.nn": ("-m", "dslc", "check", str(EXAMPLES / "resnet" / "resnet.nn")),
        "dslc build lenet.nn, warm": build,
        "load LeNet and one step": ("-c", FIRST_STEP, str(folder / "lenet" / "lenet.dslc")),
        "dslc train, two steps": (*train, "--steps", "2"),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in commands(Path(folder)).items():
            seconds, processor = [], []
            for _ in range(TIMES + 1):
                start, before = time.perf_counter(), _processor()
                # Two steps do not learn a batch, which is no error here.
                done = subprocess.run(
                    (sys.executable, *arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                    env={**os.environ, "DSLC_CACHE_DIR": str(Path(folder) / "cache")},
                )  # fmt: skip
                assert done.returncode in (0, 1), done.stderr
                seconds.append(time.perf_counter() - start)
                processor.append(_processor() - before)
            del seconds[0], processor[0]  # reads the files into memory, and compiles
            spread = f"{min(seconds):.3f} to {max(seconds):.3f}"
            print(
                f"{name:26} {statistics.median(seconds):.3f} s   {spread}   processor {min(processor):.3f} s",
                flush=True,
            )


def _processor() -> float:
    """Seconds of the processor that children have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
