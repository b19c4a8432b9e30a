"""Objects of the CPU: LLVM IR becomes object code, and the kernels of an artifact become one object per level."""
