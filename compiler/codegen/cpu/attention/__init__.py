"""Attention on the CPU, in tiles of queries and keys.

``lower.py`` takes the node; ``forward.py`` and ``backward.py`` write the kernels.
"""
