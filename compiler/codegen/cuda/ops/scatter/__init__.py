"""Scatters; two runs have the same bits, by one order of the sums of equal ids, or by sums that have none.

``scatter.py`` takes the node. Rows are combined by ``scatter_rows.py``, elements by ``scatter_elements.py``,
``scatter_atomic.py`` and, few on each line, ``scatter_few.py``.
``row_order.py`` sorts the places of ids, and ``together.py`` serves several tables with one launch.
"""
