"""Fusion into reductions: the pointwise ops before and after them, and the values that they compute on the way."""
