"""Contractions on the CPU.

``lower.py`` takes the node, ``plan.py`` chooses kernels, ``kernel_code.py`` writes them.
"""
