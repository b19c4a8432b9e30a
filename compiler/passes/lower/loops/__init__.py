"""Loops at run time: moves work out of their bodies, and gives the bodies forms that kernels compute well.

``half_loops.py`` and ``after_loops.py`` are passes. The three others are parts of ``simplify``.
"""
