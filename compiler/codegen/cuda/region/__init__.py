"""Regions on a GPU: the source of a loop nest, which becomes LLVM IR through Numba-CUDA.

``schedule.py`` maps a region to threads in one of the ways of ``thread_mapping.py``, and ``kernel.py`` compiles it. A
file for each way writes the source: ``pointwise.py`` (Flat), ``transpose.py`` (Tiles), and ``reduction`` (Rows and
Columns), with ``writer.py`` for lines and ``values.py`` for expressions. ``neighbours.py`` puts pointwise steps before
and after an op into its kernel; ``axis_pieces.py`` cuts its axes for that.
"""
