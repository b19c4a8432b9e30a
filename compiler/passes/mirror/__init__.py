"""Recomputation: which forward values the backward pass computes again instead of keeping them in memory.

``mirror.py`` has the pass. ``candidates.py`` proposes values, ``select.py`` picks a set of them, ``estimate.py``
estimates its bytes and time, and ``rewrite.py`` makes the graph.
"""
