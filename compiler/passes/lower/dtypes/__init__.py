"""Dtypes: takes a graph of abstract ``float`` values, and decides which are f32, bf16 or f16 and where they are
converted.

``precision.py`` is the pass that does so, and ``wide.py`` its rule for nodes that stay in f32. The other passes suit
the result to the target's kernels: ``widen_halves.py`` computes in f32 what has no kernel for 16 bits,
``half_reads.py`` and ``half_orders.py`` let kernels that compute in f32 read 16 bits.
"""
