"""Kernels for NVIDIA GPUs: regions as Numba-CUDA functions, CUDA C++ for what needs tiles; made without a GPU."""
