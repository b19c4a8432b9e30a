"""Nodes that follow one another, few rows each, as one resident kernel: takes the op ``chain``, gives one launch.

``stages.py`` says which nodes can be stages, ``lower.py`` whether a chain is faster, ``source.py`` and
``left_factor.py`` write the text. A new kind of stage is a class in ``stages.py`` and its text in ``source.py``.
"""
