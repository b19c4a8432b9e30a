"""Rows of data from files: what a configuration may name, read by row number, checked before it is used."""
