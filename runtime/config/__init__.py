"""``dslc.yaml``: its schema, one file of readers for each section, and the values of a run."""
