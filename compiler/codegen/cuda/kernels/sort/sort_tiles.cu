// Sorts the middle axis of x [., COUNT, AFTER], of ALL lines of at most TILE elements: a block sorts LINES lines, each by
// TILE / 2 threads, which compare pairs in shared memory: Batcher's bitonic sort. The order is strict, as it includes the
// places, so equal elements keep their order. TILE is a power of 2; what is missing has place -1 and is last.
#include "order.cuh"

__device__ __forceinline__ bool swapped(KEY a, int i, KEY b, int j) { return i < 0 || j < 0 ? j >= 0 : ahead(b, j, a, i); }

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ x, T *__restrict__ values, int *__restrict__ places, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  __shared__ KEY keys[LINES * TILE];
  __shared__ int found[LINES * TILE];
  const int first = blockIdx.x * LINES;
  for (int i = threadIdx.x; i < LINES * TILE; i += THREADS) {
    const int line = first + i / TILE, e = i % TILE;
    const bool there = line < s.ALL && e < s.COUNT;
    const long long at = ((long long)(line / s.AFTER) * s.COUNT + e) * s.AFTER + line % s.AFTER;
    keys[i] = there ? key(x[at]) : KEY(0);
    found[i] = there ? e : -1;
  }
  const int pair = threadIdx.x % (TILE / 2), mine = threadIdx.x / (TILE / 2) * TILE;
  for (int size = 2; size <= TILE; size *= 2) {
    for (int step = size / 2; step; step /= 2) {
      __syncthreads();
      const int low = pair / step * step * 2 + pair % step, a = mine + low, b = a + step;
      const KEY ka = keys[a], kb = keys[b];
      const int ia = found[a], ib = found[b];
      const bool up = (low & size) == 0;
      if (up ? swapped(ka, ia, kb, ib) : swapped(kb, ib, ka, ia)) {
        keys[a] = kb;
        keys[b] = ka;
        found[a] = ib;
        found[b] = ia;
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < LINES * TILE; i += THREADS) {
    const int line = first + i / TILE, from = found[i];
    if (from < 0) continue;
    const long long base = (long long)(line / s.AFTER) * s.COUNT * s.AFTER + line % s.AFTER;
    const long long to = base + (long long)(i % TILE) * s.AFTER;
    values[to] = x[base + (long long)from * s.AFTER];
    places[to] = from;
  }
}
