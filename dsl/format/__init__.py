"""The canonical layout of a source: `dslc fmt`."""
