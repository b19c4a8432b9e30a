"""Horizontal fusion: nodes that do not depend on each other become one node, to save launches."""
