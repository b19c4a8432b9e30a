"""Layout: the order of axes in memory, and padding, for convolutions, attention and the classes of a loss."""
