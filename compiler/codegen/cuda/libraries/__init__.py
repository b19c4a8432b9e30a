"""Libraries of NVIDIA: which nodes they compute, and the instructions that call them.

A file for each library, and ``library.py`` with what they have in common. ``registry.py`` lists them and decides
between a call and own kernels: by ``Library.call``, whether the library computes a node, then by ``Library.own``,
whether own kernels are faster. A measured choice comes before both. ``cudnn_attention.py``, ``cudnn_pace.py`` and
``cudnn_plans.py`` are parts of ``cudnn.py``. A new library is listed in ``registry.py``.
"""
