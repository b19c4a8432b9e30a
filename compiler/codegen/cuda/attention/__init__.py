"""Attention on a GPU: in tiles on tensor cores, for few queries, or as separate kernels."""
