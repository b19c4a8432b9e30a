"""Fusion into reductions: the pointwise ops before and after them, and the values that they compute on the way.

A file for each. Those of several sums become ``fused_sums``, those of one op that takes neighbours ``fused_rows``.
"""
