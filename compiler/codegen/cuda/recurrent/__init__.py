"""A loop at run time as one resident kernel: takes the op ``scan``, gives one launch for all steps.

``cell.py`` says which loops can be resident. ``division.py`` describes how blocks and threads share the work,
``tensor_core_division.py`` for products in 16 bits and TF32, ``scalar_division.py`` for those in f32 and TF32;
``choose_division.py`` takes the fastest by the model. ``step_schedule.py`` orders the work of a step. ``source.py``,
``elements.py`` and ``formulas.py`` write the text, ``lower.py`` makes the launch. Other loops run step by step, by the
kernels of their bodies.
"""
