"""Ops with CPU kernels of their own, one file for an op or a family.

A new one goes here, with ``@lowers(op, target="cpu")``.
"""
