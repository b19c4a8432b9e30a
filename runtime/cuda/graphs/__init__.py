"""CUDA graphs: those of plans, of single kernels, and the calls of the driver that make and launch them."""
