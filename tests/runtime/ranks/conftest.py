"""A fake GPU for the tests of this folder."""

from __future__ import annotations

from fake_gpu.fixtures import machine

__all__ = ["machine"]
