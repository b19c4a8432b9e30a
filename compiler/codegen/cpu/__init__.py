"""Native code for CPUs: kernels as LLVM IR, one object a level of the instruction set."""
