"""LLVM IR for the GPU: the functions that the source of a region calls, for Numba-CUDA."""
