"""Fusion: many nodes become few, each of them one kernel or a short sequence.

One folder for each kind of fusion; ``body.py`` has what they share, the bodies of fused nodes. The passes of the
folders alternate: their order is the tuple ``FUSING`` of ``compiler/passes/order.py``. A new one is a file in the
folder of its kind. It keeps every bit, and leaves nodes whose target has no kernel for the whole.
"""
