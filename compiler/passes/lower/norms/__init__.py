"""What the pass ``decompose`` makes of normalisations: a class for each kind, and ``parts.py`` with what they share."""
