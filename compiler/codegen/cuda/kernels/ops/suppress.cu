// keep[i] of a line: true unless an earlier j with keep[j] has overlap[j][i] above LIMIT. A block goes through the COUNT elements of its line.
extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ overlap, bool *keep) {
  wait_for_those_before();
  overlap += (long long)blockIdx.x * COUNT * COUNT;
  keep += (long long)blockIdx.x * COUNT;
  for (int j = threadIdx.x; j < COUNT; j += THREADS) keep[j] = true;
  __syncthreads();
  for (int i = 0; i < COUNT; ++i) {
    if (keep[i]) {
      const T *row = overlap + (long long)i * COUNT;
      for (int j = i + 1 + threadIdx.x; j < COUNT; j += THREADS) {
        if (wide(row[j]) > LIMIT) keep[j] = false;
      }
    }
    __syncthreads();
  }
}
