"""A loop at run time as one resident kernel: takes the op ``scan``, gives one launch for all steps.

``cell.py`` says which loops can be resident, ``room.py`` divides them among blocks, ``source.py`` and
``formulas.py`` write the text, ``lower.py`` makes the launch. Other loops run step by step, by the kernels of their
bodies.
"""
