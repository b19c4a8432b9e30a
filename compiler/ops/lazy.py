"""``np``: numpy, imported when something of it is first used.

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
            setattr(self, name, value)  # the next look-up does not come here
            return value

    np = _Numpy()

__all__ = ["np"]
