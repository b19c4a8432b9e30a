"""Code generation: a node becomes launches, and each launch the code of a kernel.

A node is lowered by the function that ``@lowers`` its op. ``lowerings.py`` finds it in ``region`` if it serves every
target, else in a folder of the target: ``attention``, ``contraction`` or ``ops``, which ``cpu`` and ``cuda`` both
have. The lowering returns the descriptions of kernels (``launch.py``); ``Target.blobs`` (``target.py``) has them
compiled. ``lowering_cache.py`` lowers equal nodes once, ``targets.py`` names the targets, and ``device_model.py`` has
the figures of the devices that decisions assume.
"""
