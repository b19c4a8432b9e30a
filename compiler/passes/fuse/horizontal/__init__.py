"""Horizontal fusion: nodes that do not depend on each other become one node, to save launches.

A file for each kind of node that is merged: pointwise nodes, reductions, slices, padded parts, updates, casts.
"""
