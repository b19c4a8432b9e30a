"""Fusion into contractions: a product and the pointwise node that reads it become one node.

``pointwise_join.py`` makes that node. A file for each kernel that computes it: own tiles in f32 and f64
(``epilogue.py``), few rows (``few_rows_epilogue.py``), library calls for matrix products (``library_epilogue.py``) and
for convolutions (``convolution_epilogue.py`` in ``predict``, ``training_epilogue.py`` in training). ``tf32.py`` rounds
factors, and ``chains.py`` joins products that follow one another.
"""
