"""Proves that a graph and a finished program are sound, without using the passes that built them.

``graph.py`` is for graphs, ``program.py`` for programs: it replays the schedule on memory (``memory.py``) and streams
(``streams.py``).
"""
