"""Regions on a GPU: ``schedule.py`` maps one to threads, ``kernel.py`` compiles it.

``pointwise.py``, ``reduction.py``, ``sweep.py`` and ``transpose.py`` write the source of one kind of schedule each,
with ``writer.py`` and ``values.py``.
"""
