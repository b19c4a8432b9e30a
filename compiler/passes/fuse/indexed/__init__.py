"""Fusion of gathers and scatters: one launch for several tables, one order of equal ids, casts of rows alone."""
