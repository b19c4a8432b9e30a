"""Contractions on a GPU: matrix products, convolutions and their gradients.

``lower.py`` takes the node, ``problem.py`` states its addresses (``convolution.py`` of convolutions), ``tiles.py``
chooses the tile, ``kernel.py`` describes the kernel. ``few_rows.py``, ``dots.py``, ``depthwise.py`` and
``few_channels.py`` have kernels for shapes that tiles do not suit; a new one goes next to them, and ``lower.py`` or
``direct.py`` asks it first. The source is in ``kernels/contraction``.
"""
