"""Planning: the kernels of each node, the order of the nodes, their streams, and an offset for every value.

``pack_weights``, ``prepare`` and ``joined_loops`` still rewrite the graph; ``prepared_program.py`` is the program of
what ``prepare`` takes out. Then ``select_kernels``, ``schedule``, ``streams`` and ``memory`` each fill a field of the
``Program``; the tuple is ``PLANNING`` of ``compiler/passes/order.py``.
``value_uses.py``, ``fixed_places.py``, ``work_ranges.py`` and ``allocate.py`` are the steps of ``memory``, and
``step_block.py`` has the offsets of the scalars. ``list_schedule.py`` is the algorithm of ``streams``, on
``stream_tables.py`` and ``stream_timeline.py``. ``workspaces.py`` is no pass: with a budget, ``pipeline.py`` has it
compare plans for several limits of the workspaces of library calls.
"""
