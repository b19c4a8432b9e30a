"""Fusion into contractions: epilogues of matrix products and convolutions, and the rounding of their factors."""
