"""Proposes the map of a file's tensors to those of a model, from shapes, numbers and names."""
