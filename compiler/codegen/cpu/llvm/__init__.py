"""LLVM IR for the CPU: the writer, vectors, and functions of numbers."""
