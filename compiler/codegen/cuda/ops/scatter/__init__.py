"""Scatters; the sum of equal ids has one order, so two runs have the same bits.

``scatter.py`` takes the node. Rows are combined by ``scatter_rows.py``, elements by ``scatter_elements.py``.
``row_order.py`` sorts the places of ids, and ``together.py`` serves several tables with one launch.
"""
