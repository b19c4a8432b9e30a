"""The runs of a project: their records, their weights, which weights are published, lists and comparisons."""
