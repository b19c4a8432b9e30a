"""The fixtures of tests on a fake GPU."""

from __future__ import annotations

from fake_gpu.fixtures import machine, pair

__all__ = ["machine", "pair"]
