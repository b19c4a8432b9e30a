"""Attention on a GPU: in tiles on tensor cores, for few queries, or as separate kernels.

``lower.py`` takes the node and has the separate kernels, ``tiled.py`` and ``few_queries.py`` the other two ways;
``pair_gradient.py`` has the gradient of a bias, and all gradients of few rows. ``tiles.py`` has the tiles, and
``variants.py`` names those that may be measured; ``placed.py`` and ``sums.py`` are what kernels share. Their source is
in ``kernels/attention``.
"""
