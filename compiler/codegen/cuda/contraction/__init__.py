"""Contractions on a GPU: matrix products, convolutions and their gradients.

``lower.py`` takes the node, ``problem.py`` states its addresses, ``tiles.py`` chooses the tile, ``kernel.py``
describes the kernel. ``few_rows.py``, ``dots.py`` and ``depthwise.py`` have kernels for shapes that tiles do not
suit; a new one goes next to them, and ``lower.py`` asks it first. The source is in ``kernels/contraction``.
"""
