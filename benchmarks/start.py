"""Median seconds of ten starts: importing dslc, ``dslc --help``, and checking ResNet.

python benchmarks/start.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

RESNET = Path(__file__).resolve().parents[1] / "examples" / "resnet" / "resnet.nn"
COMMANDS = {
    "python -c pass": ("-c", "pass"),
    "import dslc": ("-c", "import dslc"),
    "dslc --help": ("-m", "dslc", "--help"),
    "dslc check resnet.nn": ("-m", "dslc", "check", str(RESNET)),
}
TIMES = 10


def main() -> None:
    for name, arguments in COMMANDS.items():
        seconds = []
        for _ in range(TIMES + 1):
            start = time.perf_counter()
            subprocess.run((sys.executable, *arguments), check=True, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - start)
        del seconds[0]  # reads the files into memory
        print(f"{name:22} {statistics.median(seconds):.3f} s   {min(seconds):.3f} to {max(seconds):.3f}")


if __name__ == "__main__":
    main()
