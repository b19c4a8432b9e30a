// Triangles l and u with l u = x[order], of matrices of COUNT rows, both in y; sign: 1 or -1, of an even or odd number of
// swapped rows. A block for each matrix, that goes from column to column.

// Whether row i, with x in the column, comes before row j as a pivot: nan, then the greatest, then the first.
__device__ __forceinline__ bool is_better(T x, int i, T y, int j) {
  const bool lost = x != x, other = y != y;
  if (lost || other) return lost && (!other || i < j);
  return x > y || (x == y && i < j);
}

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ x, T *y, int *order, int *sign) {
  wait_for_those_before();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  x += (long long)blockIdx.x * COUNT * COUNT;
  y += (long long)blockIdx.x * COUNT * COUNT;
  order += (long long)blockIdx.x * COUNT;
  for (long long i = threadIdx.x; i < (long long)COUNT * COUNT; i += THREADS) y[i] = x[i];
  for (int i = threadIdx.x; i < COUNT; i += THREADS) order[i] = i;
  int swaps = 1;
  __syncthreads();
  for (int k = 0; k < COUNT; ++k) {
    T most = -1;
    int best = COUNT;  // the same in all warps
    for (int i = k + lane; i < COUNT; i += 32) {
      const T seen = fabs(y[(long long)i * COUNT + k]);
      if (is_better(seen, i, most, best)) {
        most = seen;
        best = i;
      }
    }
    for (int step = 16; step; step /= 2) {
      const T other = __shfl_xor_sync(0xFFFFFFFFu, most, step);
      const int at = __shfl_xor_sync(0xFFFFFFFFu, best, step);
      if (is_better(other, at, most, best)) {
        most = other;
        best = at;
      }
    }
    __syncthreads();  // all have read the column
    T *own = y + (long long)k * COUNT;
    if (best != k) {
      T *other = y + (long long)best * COUNT;
      for (int j = threadIdx.x; j < COUNT; j += THREADS) {
        const T kept = own[j];
        own[j] = other[j];
        other[j] = kept;
      }
      if (threadIdx.x == 0) {
        const int kept = order[k];
        order[k] = order[best];
        order[best] = kept;
      }
      swaps = -swaps;
    }
    __syncthreads();
    const T pivot = own[k];
    for (int i = k + 1 + threadIdx.x; i < COUNT; i += THREADS) {
      T *factor = y + (long long)i * COUNT + k;
      if (pivot != 0) *factor = *factor / pivot;
    }
    __syncthreads();
    for (int i = k + 1 + warp; i < COUNT; i += THREADS / 32) {
      T *row = y + (long long)i * COUNT;
      const T factor = row[k];
      for (int j = k + 1 + lane; j < COUNT; j += 32) row[j] -= factor * own[j];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) sign[blockIdx.x] = swaps;
}
