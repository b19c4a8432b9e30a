"""Loops at run time: moves work out of their bodies, and gives the bodies forms that kernels compute well.

The passes ``half_loops.py`` and ``after_loops.py`` run first, in this order. ``hoist_loops.py``, ``prune_loops.py``
and ``align_loops.py`` are parts of ``simplify``, which runs next.
"""
