"""Tests for packages that bring ops: ``assert not check_package("gates")`` (docs/own_ops.md)."""

from dslc.testing.laws import Broken, check_package

__all__ = ["Broken", "check_package"]
