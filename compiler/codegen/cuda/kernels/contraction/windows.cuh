// Where the windows of a convolution, or of its gradient for x (BACK), read. OWN: the side that is written or walked along,
// OTHER: the side that is read. Along the last axis, the reads of PIXELS neighbours are known when this is compiled, but for the
// thread's base.
// The place that pixel p reads for tap j of the last axis, as a distance from the thread's base.
__device__ constexpr int offset_of(int p, int j) {
  return BACK ? (p + EDGE[2] - j * GAP[2]) / STRIDE[2] : p * STRIDE[2] - EDGE[2] + j * GAP[2];
}
__device__ constexpr bool reads(int p, int j) { return !BACK || (p + EDGE[2] - j * GAP[2]) % STRIDE[2] == 0; }

// The place along another axis, or -1 if there is none.
__device__ __forceinline__ int source(int axis, int own, int tap, int size) {
  int at = BACK ? own + EDGE[axis] - tap * GAP[axis] : own * STRIDE[axis] - EDGE[axis] + tap * GAP[axis];
  if (BACK) {
    if (at % STRIDE[axis]) return -1;
    at /= STRIDE[axis];
  }
  return (unsigned)at < (unsigned)size ? at : -1;
}
