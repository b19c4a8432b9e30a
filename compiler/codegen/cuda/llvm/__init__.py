"""LLVM IR for the GPU: the functions that the source of a region calls, for Numba-CUDA.

``body.py`` takes the source, ``library.py`` maps each name to the function that writes its IR, in one of the other
files. A new function goes to the file of its kind and into ``library.py``.
"""
