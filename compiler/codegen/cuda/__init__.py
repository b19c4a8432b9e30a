"""GPU kernels: regions as LLVM IR through Numba-CUDA, and CUDA C++ for tiled kernels; built without a GPU."""
