"""Contractions on the CPU: matrix products, convolutions and their gradients.

``lower.py`` takes the node, ``plan.py`` chooses kernels, ``kernel_code.py`` writes them. ``matmul.py``,
``conv*.py`` and ``depthwise*.py`` state one kind of problem each; a new kind is a file next to them and an entry in
``lower.py``.
"""
