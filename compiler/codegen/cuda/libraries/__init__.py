"""Libraries of NVIDIA: which nodes they compute, and the instructions that call them.

A file for each library, and ``library.py`` with what they have in common. A new one is listed in ``registry.py``.
"""
