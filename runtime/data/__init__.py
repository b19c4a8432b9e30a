"""Rows of data from files: the sources that a configuration may name, read by row number, checked before use."""
