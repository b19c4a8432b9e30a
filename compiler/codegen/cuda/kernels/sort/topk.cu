// The K first elements of lines of COUNT in an order, and their places: a block for each line, that goes through it once
// for each, and looks for the first element behind the one taken last. x [., COUNT, AFTER], values and places [., K, AFTER].
// ITEMS: elements of a thread, which holds them in registers; 0: they are read each time.

#include "order.cuh"
// The earlier of the pair held and another one; place -1 is none.
__device__ __forceinline__ void take(KEY &held, int &place, KEY other, int there) {
  if (there >= 0 && (place < 0 || ahead(other, there, held, place))) {
    held = other;
    place = there;
  }
}

__device__ __forceinline__ void first_of_warp(KEY &held, int &place) {
#pragma unroll
  for (int step = 16; step; step /= 2) {
    const KEY other = __shfl_xor_sync(0xFFFFFFFFu, held, step);
    const int there = __shfl_xor_sync(0xFFFFFFFFu, place, step);
    take(held, place, other, there);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ x, T *__restrict__ values, int *__restrict__ places) {
  wait_for_those_before();
  const long long before = blockIdx.x / AFTER, after = blockIdx.x % AFTER;
  const T *line = x + before * COUNT * AFTER + after;
  __shared__ KEY keys[THREADS / 32];
  __shared__ int found[THREADS / 32];
#if ITEMS
  KEY mine[ITEMS];
#pragma unroll
  for (int j = 0; j < ITEMS; ++j) {
    const int i = threadIdx.x + j * THREADS;
    if (i < COUNT) mine[j] = key(line[(long long)i * AFTER]);
  }
#endif
  KEY last = 0;
  int taken = -1;
  for (int k = 0; k < K; ++k) {
    KEY held = 0;
    int place = -1;
#if ITEMS
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) {
      const int i = threadIdx.x + j * THREADS;
      if (i < COUNT && (taken < 0 || ahead(last, taken, mine[j], i))) take(held, place, mine[j], i);
    }
#else
    for (int i = threadIdx.x; i < COUNT; i += THREADS) {
      const KEY value = key(line[(long long)i * AFTER]);
      if (taken < 0 || ahead(last, taken, value, i)) take(held, place, value, i);
    }
#endif
    first_of_warp(held, place);
    if (THREADS > 32) {
      __syncthreads();  // the warps have read what the last round found
      if (threadIdx.x % 32 == 0) {
        keys[threadIdx.x / 32] = held;
        found[threadIdx.x / 32] = place;
      }
      __syncthreads();
      held = keys[0];
      place = found[0];
#pragma unroll
      for (int w = 1; w < THREADS / 32; ++w) take(held, place, keys[w], found[w]);
    }
    last = held;
    taken = place;
    if (threadIdx.x == 0) {
      const long long at = (before * K + k) * AFTER + after;
      values[at] = line[(long long)place * AFTER];
      places[at] = place;
    }
  }
}
