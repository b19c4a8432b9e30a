"""Attention on a GPU: in tiles on tensor cores, for few queries, or as separate kernels.

``lower.py`` takes the node and has the separate kernels, ``tiled.py`` and ``few_queries.py`` the other two ways;
``tiles.py`` has the tiles, and ``variants.py`` names those that may be measured. Their source is
in ``kernels/attention``.
"""
