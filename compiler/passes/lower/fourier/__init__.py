"""Discrete Fourier transforms as kernels of whole transforms, or as products of matrices.

``transforms.py`` is the pass. ``narrowed.py`` first leaves out zeros that are given and results that nothing reads.
``ways.py`` chooses how to compute a transform by the cost model. ``stages.py`` makes the nodes of one product or of
several stages, ``folded.py`` those of products with parts of the matrix, and ``matrices.py`` the numbers that they
multiply by. Another algorithm is a way in ``ways.py``, and a file that makes its nodes.
"""
