"""Layout: the order of axes in memory, and padding, for convolutions, attention and the classes of a loss.

A file for each rewrite; values keep their bits, or the file says why not.
"""
