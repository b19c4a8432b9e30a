"""The runtime on NVIDIA GPUs. Nothing here is imported before a GPU is requested; only driver.py imports
``cuda.bindings`` (and only memory_resource.py imports cuda.core)."""
