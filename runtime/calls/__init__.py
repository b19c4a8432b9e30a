"""The calls of a session: their arguments, their split into built sizes, and the combination of results."""
