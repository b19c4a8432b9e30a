"""The command: ``python benchmarks/op_sweep --help``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from op_sweep.command import main

if __name__ == "__main__":
    sys.exit(main())
