"""A loop at run time as one resident kernel: takes the op ``scan``, gives one launch for all steps.

``cell.py`` says which loops can be resident, ``division.py`` chooses how blocks divide them: ``core_room.py`` for
products in 16 bits, ``scalar_room.py`` for those in f32, ``room.py`` for both. ``source.py`` and ``formulas.py`` write
the text, ``lower.py`` makes the launch. Other loops run step by step, by the kernels of their
bodies.
"""
