"""Pointwise fusion: trees of pointwise ops become one node; producers move into their readers.

``pointwise.py`` (the pass ``fuse``) comes first; the other passes make its nodes larger or let them read and write
parts. ``stacks.py`` and ``parts.py`` are the analysis and the builder of ``stacked.py``.
"""
