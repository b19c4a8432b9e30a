"""Contractions on the CPU: matrix products, convolutions and their gradients.

``lower.py`` takes the node. ``matmul.py``, ``conv.py`` and ``depthwise_last.py`` state one kind of problem each as
``steps.py``; a new kind is a file next to them and an entry in ``lower.py``. Three kinds of kernels compute problems:

- ``plan.py`` chooses between ``kernel.py`` (any strides; its code is ``kernel_code.py``, with ``axes.py``, ``near.py``
  and ``shared.py``) and ``dot.py`` (few rows), and what ``panels.py`` and ``pack.py`` copy before.
- Convolutions have kernels of their own for the gradient of the input (``conv_image.py``, by ``microkernel.py``, with
  ``conv_windows.py``) and for one filter per channel (``depthwise*.py``, with ``pixels.py``). ``layouts.py`` has their
  windows and strides, ``parts.py`` what strides and borders leave out.
- ``small_matmul.py`` is for kernels of other folders that multiply small matrices.
"""
