"""Dtypes: takes a graph of abstract ``float`` values, and decides which are f32, bf16 or f16 and where they are
converted.

``precision.py`` is the pass that does so, and ``wide.py`` its rule for nodes that stay in f32. The two others suit
the result to the kernels of the target.
"""
