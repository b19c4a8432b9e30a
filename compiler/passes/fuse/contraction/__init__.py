"""Fusion into contractions: a product and the pointwise node that reads it become one node.

``pointwise_readers.py`` makes that node. A file for each kernel that takes it: own tiles (``epilogue.py``), few
rows, libraries. ``tf32.py`` rounds factors, and ``chains.py`` joins products that follow one another.
"""
