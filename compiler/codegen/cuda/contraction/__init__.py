"""Contractions on a GPU.

``lower.py`` takes the node, ``tiles.py`` chooses the tile, ``kernel.py`` describes the kernel.
"""
