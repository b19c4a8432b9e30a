"""Simplification: the pass ``simplify`` and its rules, which keep every bit.

A new rule of one node is a function in ``simplify_rules.py``; one that needs more of the graph is a file that
``simplify.py`` calls.
"""
