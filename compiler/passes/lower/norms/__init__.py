"""The nodes that the pass ``decompose`` makes of normalisations: a class for each kind; ``parts.py`` has what they
share."""
