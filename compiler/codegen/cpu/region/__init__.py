"""Regions on the CPU: ``schedule.py`` chooses the axis of the vectors and the tasks, ``kernel.py`` writes the code.

``row.py`` writes one row, ``element_stage.py`` what is computed of its elements, ``lanes.py`` values of several rows or
elements at once, ``accumulate.py`` reductions, ``tiles.py`` transposes. ``size_generic.py`` lets regions of other sizes
share the code, and ``split_choice.py`` decides which rows are split. No file here knows an op.
"""
