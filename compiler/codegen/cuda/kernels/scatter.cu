// table[ids[j]] += rows[j] for all j in order, into a table of zeros: one block for each j, that works when no earlier j
// has the same id, and adds all rows of its id, in order; so nothing is added by two blocks and the sum has one order.
// OUTER tables, COUNT lines each; ids and rows [OUTER, LENGTH, ...], lines of INNER elements. An id that does not exist
// makes its table nan (nothing, where the dtype has no nan).

__device__ __forceinline__ long long id_of(const I *ids, int length, int outer, int j) { return (long long)ids[(long long)outer * length + j]; }

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ rows, const I *__restrict__ ids, T *__restrict__ table,
                                                                  NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const int outer = blockIdx.x / s.LENGTH, own = blockIdx.x % s.LENGTH;
  const long long id = id_of(ids, s.LENGTH, outer, own);
  T *lines = table + (long long)outer * s.COUNT * s.INNER;
  if (id < 0 || id >= s.COUNT) {
    if (HAS_NAN)
      for (long long e = threadIdx.x; e < (long long)s.COUNT * s.INNER; e += THREADS) put_nan(lines + e);
    return;
  }
  __shared__ int places[THREADS];
  __shared__ int warps[THREADS / 32];
  // Lost, if any id of the table is: then the nan of that one stays.
  bool earlier = false, lost = false;
  for (int j = threadIdx.x; j < s.LENGTH; j += THREADS) {
    long long other = id_of(ids, s.LENGTH, outer, j);
    earlier |= j < own && other == id;
    lost |= other < 0 || other >= s.COUNT;
  }
  if (__syncthreads_or(earlier) || (__syncthreads_or(lost) && HAS_NAN)) return;
  const T *sources = rows + (long long)outer * s.LENGTH * s.INNER;
  for (int first = 0; first < s.INNER; first += THREADS * EACH) {
    SUM sums[EACH] = {};
    for (int start = own / THREADS * THREADS; start < s.LENGTH; start += THREADS) {
      const int j = start + threadIdx.x;
      const bool mine = j >= own && j < s.LENGTH && id_of(ids, s.LENGTH, outer, j) == id;
      const unsigned votes = __ballot_sync(0xFFFFFFFFu, mine);
      const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
      if (lane == 0) warps[warp] = __popc(votes);
      __syncthreads();
      int before = 0, found = 0;
      for (int w = 0; w < THREADS / 32; ++w) {
        before += w < warp ? warps[w] : 0;
        found += warps[w];
      }
      if (mine) places[before + __popc(votes & ((1u << lane) - 1))] = j;
      __syncthreads();
      for (int n = 0; n < found; ++n) {
        const T *source = sources + (long long)places[n] * s.INNER;
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
          const int column = first + i * THREADS + threadIdx.x;
          if (column < s.INNER) sums[i] += wide(source[column]);
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int column = first + i * THREADS + threadIdx.x;
      if (column < s.INNER) store(lines + id * s.INNER + column, sums[i]);
    }
  }
}
