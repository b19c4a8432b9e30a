"""The numbers of elements up to which kernels index tensors in i32; i64 takes more registers and instructions."""

from __future__ import annotations

from typing import Final

#: An i32 indexes each element of a tensor of at most as many elements; it counts fewer.
I32_ELEMENTS: Final = 2**31
#: The same if a kernel also computes indices outside of a tensor, such as those of a window in the padding: at most as
#: many as the tensor has elements.
I32_PADDED_ELEMENTS: Final = 2**30
#: The same if the threads of the last block compute indices past the end: 2^21 elements are more than a block has.
I32_ELEMENTS_AND_BLOCK: Final = 2**31 - 2**21
