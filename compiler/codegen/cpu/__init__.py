"""Native code for CPUs: kernels as LLVM IR, one object per level of the instruction set."""
