"""Fusion: many nodes become few, each of them one kernel or a short sequence.

One folder for each kind of fusion; ``body.py`` and ``rebuild.py`` are what they share. The passes of the folders
alternate: their order is the tuple ``FUSING`` of ``compiler/passes/order.py``.
"""
