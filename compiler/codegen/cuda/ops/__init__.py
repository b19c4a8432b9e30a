"""Ops with GPU kernels of their own.

A new one goes here, with ``@lowers(op, target="cuda")``; its CUDA source goes to ``kernels/ops``. ``copies`` moves
elements, ``scatter`` adds to rows and elements by index, ``sort`` orders lines. The other ops have a file each.
"""
