"""One file for each section of ``dslc.yaml``: the readers of its values, and its fields."""
