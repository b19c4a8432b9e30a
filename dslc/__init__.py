"""dslc: neural networks as text, compiled ahead of time."""

__version__ = "0.1.0"
