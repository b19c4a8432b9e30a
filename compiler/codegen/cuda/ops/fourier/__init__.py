"""Fourier transforms as GPU kernels that keep their numbers in registers and shared memory.

``lower.py`` makes the launches of a node, ``kernel.py`` describes a kernel, ``butterflies.py`` writes the transforms of
one stage's order. What the stages are is planned in ``ops/products/fourier_plan.py``; another kind of stage is a file
here and a case there.
"""
