"""Regions: the loop nest of an op, the same for every target.

``ir.py`` defines it, ``queries.py`` has the questions that code generators ask, and each other file lowers a family of
ops to regions. ``cpu/region`` and ``cuda/region`` write their code.
"""
