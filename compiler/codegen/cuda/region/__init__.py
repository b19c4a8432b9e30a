"""Regions on a GPU: the source of a loop nest, which becomes LLVM IR through Numba-CUDA.

``schedule.py`` maps a region to threads in one of the ways of ``thread_mapping.py``, and ``kernel.py`` compiles it. A
file for each way writes the source: ``pointwise.py`` with ``flat_addresses.py`` (Flat), ``transpose.py`` (Tiles, whose
sides ``tile_choice.py`` chooses), and ``reduction`` (Rows and Columns), with ``writer.py`` for lines, ``values.py`` for
expressions and ``registers.py`` for dtypes.

``cuda/lower.py`` changes regions before they are scheduled: ``merge_axes.py`` merges their axes, ``promote_f32.py``
keeps values of 16-bit ops in f32, ``split_choice.py`` cuts long rows into parts. ``values.py`` then writes faster
functions where a value is rounded to 16 bits (``fast_math.py``).
``neighbours.py`` puts pointwise steps before and after an op into its kernel, as the region of ``extended.py``, which
keeps the op's schedule; ``axis_pieces.py`` cuts its axes for that. ``whole_vectors.py`` schedules lengths that no
vector divides, and ``variants.py`` names the other schedules that may be measured.
"""
