"""Objects of the CPU: LLVM IR becomes object code, and the kernels of an artifact become one object per level.

``compile.py`` compiles one kernel, ``elf_merge.py`` merges them. ``memcpy.py`` and ``thread_driver.py`` add the
functions that are the same in every object: copies, and the call that runs a list of kernels on a team of threads.
"""
