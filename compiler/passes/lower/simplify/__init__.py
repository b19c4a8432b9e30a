"""Simplification: the pass ``simplify`` and its rules, which keep every bit."""
