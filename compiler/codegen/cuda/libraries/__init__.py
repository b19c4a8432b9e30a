"""Libraries of NVIDIA: which nodes they compute, and the instructions that call them."""
