"""Recomputation: which forward values the backward pass computes again instead of keeping them in memory.

``mirror.py`` has the pass. It asks ``training_graph.py`` what the backward pass reads, ``candidates.py`` for the values
that may be dropped, and ``select.py`` for a set of them. ``candidate_plan.py`` makes the program without these values,
and ``without_budget.py`` and ``within_budget.py`` compare such programs. ``recipes.py`` says how a dropped value is
computed again, ``lifetimes.py`` estimates the memory and time of a set, with ``range_max_tree.py``, and ``rewrite.py``
makes the graph.
"""
