"""Declared augmentation: steps that change the rows of an input before they enter a batch. Each step is a file in
``steps``."""
