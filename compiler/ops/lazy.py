"""``np``: numpy, imported at its first use.

``dslc check`` reads the op tables and computes nothing; importing numpy for that would cost 0.1 s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
else:

    class _Numpy:
        def __getattr__(self, name: str) -> Any:
            import numpy

            value = getattr(numpy, name)
            setattr(self, name, value)  # later look-ups bypass this function
            return value

    np = _Numpy()

__all__ = ["np"]
