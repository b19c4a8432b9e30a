"""Scatters; two runs have the same bits, by one order of the sums of equal ids, or by sums that have none.

``scatter.py`` takes the node, and ``scatter_places.py`` those that replace elements; ``scatter_problem.py`` is what
kernels of elements are given. Rows are combined by
``scatter_rows.py``, elements by ``scatter_elements.py`` or, as integers that no order changes, by
``scatter_atomic.py`` and ``scatter_block.py``; few elements of each line by ``scatter_few.py``. ``row_order.py`` sorts
the places of ids, and ``together.py`` serves several tables with one launch.
"""
