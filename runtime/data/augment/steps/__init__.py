"""The steps that ``data.augment`` knows, one per file."""
