"""``python -m dslc``"""

from __future__ import annotations

from dslc.cli import main

if __name__ == "__main__":
    main()
