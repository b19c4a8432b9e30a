"""Discrete Fourier transforms as products of matrices.

``transforms.py`` is the pass. ``narrowed.py`` first leaves out zeros that are given and results that nothing reads.
``ways.py`` chooses the stages of a transform by the cost model, ``stages.py`` makes their nodes, ``matrices.py`` the
numbers that they multiply by. Another algorithm is a way in ``ways.py``, and nodes.
"""
