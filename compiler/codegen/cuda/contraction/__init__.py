"""Contractions on a GPU: matrix products, convolutions and their gradients.

A node takes these steps: ``lower.py`` gets it, ``problem.py`` states its addresses (``convolution.py`` of
convolutions), ``tiles.py`` chooses the tile from ``tile_tables.py``, ``kernel.py`` describes the kernel, ``output.py``
says where its sums go, and ``epilogue.py`` writes what it computes of a sum before it stores it. ``variants.py`` names
the tiles that may be measured.

Shapes that tiles do not suit have kernels of their own: ``few_rows.py``, ``dots.py``, ``depthwise.py``, ``groups.py``,
``packed_taps.py``, and ``few_channels.py`` with ``few_channels_sums.py`` (``windows.py``: what those of convolutions
share). A new one goes next to them; ``lower.py`` or ``direct.py`` asks it first. The source is in
``kernels/contraction``.
"""
