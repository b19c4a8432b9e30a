"""Makes a table that dslc ships of locks that ``dslc tune --providers own`` wrote on one GPU.

    python benchmarks/shipped_table.py h200 LOCK...

Keeps the problems whose best own kernel is not the default one. Problems that the table holds already and the locks do
not are kept, too; ``--new`` starts from an empty table. ``benchmarks/results/tuning.md`` has the commands that tuned.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dslc.compiler.lock.find import read_lock, write_lock
from dslc.compiler.lock.model import Lock
from dslc.compiler.lock.table import FOLDER, worth_shipping


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of the table, such as h200")
    parser.add_argument("locks", nargs="+", type=Path)
    parser.add_argument("--new", action="store_true", help="forget what the table holds")
    asked = parser.parse_args()
    path = FOLDER / f"{asked.name}.lock"
    before = read_lock(path) if path.exists() and not asked.new else Lock()
    read = [read_lock(each) for each in asked.locks]
    measured = before.merged(block for lock in read for block in lock.blocks)
    if len(measured.gpus) != 1:
        parser.error(f"a table is of one GPU, but these are of {len(measured.gpus)}: {'; '.join(measured.gpus)}")
    kept = worth_shipping(measured.blocks)
    write_lock(path, kept)
    print(f"{path}: {len(kept.blocks):,} of {len(measured.blocks):,} measured problems, on {measured.gpus[0]}")


if __name__ == "__main__":
    main()
