// The attention of few queries from SPLITS parts [stack, SPLITS, ROWS, FEATURES + 2]: sums of values, the largest score that
// was taken off, and the sum of weights. Parts are added in their order. A block has one query.

#include "query_parts.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const float *__restrict__ parts, T *__restrict__ y) {
  constexpr Layout at = Y;
  constexpr int STEP = ROWS * (FEATURES + 2);
  const int stack = blockIdx.x / ROWS, r = blockIdx.x % ROWS, f = threadIdx.x;
  wait_for_those_before();
  const float *const part = parts + (long long)stack * SPLITS * STEP + r * (FEATURES + 2);
  const float whole = joined(part, f, f < FEATURES);
  if (f < FEATURES) store(y + row_of(at, stack, r) + f, whole);
}
