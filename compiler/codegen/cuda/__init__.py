"""Kernels for NVIDIA GPUs, built without a GPU: a node becomes launches, and each kernel PTX and a cubin.

``lower.py`` takes a node, ``compile.py`` its kernels, and ``target.py`` gives the blobs. There are two ways to
write a kernel. ``region`` writes the source of a region, which becomes LLVM IR through Numba-CUDA with the
functions of ``llvm``. All others are CUDA C++: a file of ``kernels`` after the constants that ``cuda_cpp.py`` puts
before it; their descriptions are in ``contraction``, ``attention`` and ``ops``. ``chain`` and ``recurrent`` make
one kernel of many nodes. ``libraries`` calls cuBLASLt and cuDNN instead of a kernel: ``target.py`` asks them first.
``variants.py`` lists the ways that ``dslc tune`` measures, and ``compare.py`` checks their results. ``hardware.py``
has what kernels assume of every GPU.
"""
