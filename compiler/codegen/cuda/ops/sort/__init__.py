"""Sorting.

``sort.py`` and ``topk.py`` take the nodes, ``radix_sort.py`` sorts lines by digits, ``lines.py`` describes a line.
"""
