"""Pointwise fusion: trees of pointwise ops become one node; producers move into their readers."""
