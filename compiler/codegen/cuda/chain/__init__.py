"""Nodes that follow one another, few rows each, as one resident kernel."""
