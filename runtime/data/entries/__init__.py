"""Datasets of installed Python packages, by entry points of the group ``dslc.data``."""
