"""Lowering: from the checked graph to one whose nodes have dtypes, gradients, a layout, and kernels on the target.

``gradient`` and ``dtypes`` run first, ``loops``, ``simplify`` and ``layout`` later. The files of this folder
replace ops by others that the target computes better; ``norms`` has the parts of normalisations. A new rewrite of that
kind goes here, any other to the folder of its kind.
"""
