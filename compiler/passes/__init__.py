"""The passes: ``Program -> Program``, each a plain function in a file of its own.

The folders run in this order: ``lower``, ``mirror``, ``fuse``, ``plan``. The order of the passes is the tuple
``PIPELINE`` of ``order.py``, and ``conditions.py`` has the conditions under which one runs. ``runner.py`` runs them
and verifies the program after each. Several passes share ``queries.py``, what they ask about a graph,
``rebuild.py``, the ways to rebuild one, and ``rounding.py``. No stage imports another one, except that ``mirror`` tries
plans; import-linter holds this. A new pass is a file in the folder of its stage and an entry in ``order.py``.
"""
