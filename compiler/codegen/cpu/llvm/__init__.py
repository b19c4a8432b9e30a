"""LLVM IR for the CPU: kernels are written with these, and nothing here knows ops or nodes.

``writer.py`` has the function and its loops, ``values.py`` and ``vectors.py`` the registers. ``scalar_ops.py`` says
which functions of scalar trees exist; the other files compute them. A new function of ``ir/scalar.py`` goes there.
"""
