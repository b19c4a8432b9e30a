"""Contractions on a GPU: matrix products, convolutions and their gradients.

``lower.py`` takes the node, ``problem.py`` states its addresses (``convolution.py`` of convolutions), ``tiles.py``
chooses the tile, ``kernel.py`` describes the kernel, ``epilogue.py`` writes what it computes of a sum before it stores
it, and ``variants.py`` names the tiles that may be measured. ``few_rows.py``, ``dots.py``, ``depthwise.py``,
``groups.py`` and ``few_channels.py`` with ``few_channels_sums.py`` have kernels for shapes that tiles do not suit
(``windows.py``: what those of convolutions share); a new one goes next to them, and ``lower.py`` or ``direct.py`` asks
it first. The source is in ``kernels/contraction``.
"""
