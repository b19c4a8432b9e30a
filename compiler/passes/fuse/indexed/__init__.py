"""Fusion of gathers and scatters: one launch for several tables, one order of equal ids, casts of rows alone.

A file for each rewrite. ``replacements.py`` is the pass of ``last_indices.py``.
"""
