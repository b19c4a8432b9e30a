"""Gradients: the checked loss becomes a training step: backward pass, loss scale, averages and updates as nodes.

``autodiff.py`` is the pass and calls the other files, one for each part. The gradient of an op is in its class, not
here.
"""
