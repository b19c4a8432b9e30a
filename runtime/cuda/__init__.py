"""The runtime on NVIDIA GPUs. Nothing here is imported before a GPU is asked for; ``cuda.bindings`` in driver.py alone
(and cuda.core in memory_resource.py)."""
