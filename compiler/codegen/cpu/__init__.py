"""Native code for CPUs: a node becomes kernels in LLVM IR, an artifact's kernels one object per level.

``lower.py`` takes a node and ``target.py`` gives the objects. ``region`` writes the code of regions;
``contraction``, ``attention`` and ``ops`` lower the ops that regions do not fit. ``llvm`` is what their kernels are
written with, and ``object`` compiles them. ``levels.py`` lists the instruction sets. A new kernel goes to the
folder of its op.
"""
