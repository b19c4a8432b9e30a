"""Temp files next to their targets: written, locked, renamed; those of dead writers are removed."""
