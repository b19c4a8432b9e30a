"""Regions: the loop nest of an op, the same for every target.

``ir.py`` defines it, ``builder.py`` builds it, ``collapse.py`` merges its axes, and ``queries.py`` has the questions
that code generators ask. ``split_rows.py`` makes several launches of one, whose rows ``cut.py`` cuts into parts. Each
other file lowers a family of ops to regions. ``cpu/region`` and ``cuda/region`` write their code.
"""
