"""The calls of a session: what each takes, how it is cut into built sizes, how results are put together."""
