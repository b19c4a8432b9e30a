"""Measures on a GPU how each distinct problem of a model is computed best: ``dslc tune``, which writes a lock."""
