"""Regions with reductions, as the schedules Rows (``row_reduction.py``) and Columns (``column_reduction.py``).

Both derive from ``reduction.py``, which walks over the stages and the chunks of a row. ``stage_values.py`` computes,
loads and stores the values of a stage, and ``addresses.py`` says where their elements are. ``sweep.py`` sums over rows
while it handles them; ``row_column_sweep.py`` makes one such kernel of a region of rows and one of columns.
"""
