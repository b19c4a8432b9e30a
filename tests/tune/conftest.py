"""Fixtures of the tests of tuning that run on a fake GPU in this process."""

from fake_gpu.fixtures import gpu, machine

__all__ = ["gpu", "machine"]
