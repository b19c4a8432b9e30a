"""A fake GPU for the tests of this folder."""

from __future__ import annotations

from fake_gpu.fixtures import bench, gpu, libraries, machine, pair

__all__ = ["bench", "gpu", "libraries", "machine", "pair"]
