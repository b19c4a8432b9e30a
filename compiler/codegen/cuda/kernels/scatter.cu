// table[ids[j]] += rows[j] for all j in order, into a table of zeros: one block for each j, that works when ranks[j] is 0, and adds
// all rows of its id in the order of j; so nothing is added by two blocks and the sum has one order. work is what scatter_places.cu
// makes. COUNT lines of INNER elements. An id that does not exist makes the table nan (nothing, where the dtype has no nan).

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ rows, const I *__restrict__ ids, int *work,
                                                                  T *__restrict__ table, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const Places p = places_of(work, s.COUNT, s.LENGTH);
  if (HAS_NAN && *p.lost) {
    const long long all = (long long)s.COUNT * s.INNER;
    for (long long e = (long long)blockIdx.x * THREADS + threadIdx.x; e < all; e += (long long)gridDim.x * THREADS) put_nan(table + e);
    return;
  }
  if (p.ranks[blockIdx.x] != 0) return;
  const long long id = ids[blockIdx.x];
  const int count = p.counts[id], *mine = p.places + p.starts[id];
  __shared__ int places[MOST];
  __shared__ int warps[THREADS / 32];
  // Few are put in order; many are found in order, as an id has many rows but few ids have.
  const bool few = count <= MOST;
  for (int n = threadIdx.x; few && n < count; n += THREADS) {
    const int j = mine[n];
    int before = 0;
    for (int k = 0; k < count; ++k) before += mine[k] < j;
    places[before] = j;
  }
  __syncthreads();
  for (int first = 0; first < s.INNER; first += THREADS * EACH) {
    SUM sums[EACH] = {};
    for (int start = 0; start < (few ? 1 : s.LENGTH); start += THREADS) {
      int found = count;
      if (!few) {
        const int j = start + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const bool here = j < s.LENGTH && ids[j] == id;
        const unsigned votes = __ballot_sync(0xFFFFFFFFu, here);
        if (lane == 0) warps[warp] = __popc(votes);
        __syncthreads();
        int before = found = 0;
        for (int w = 0; w < THREADS / 32; ++w) {
          before += w < warp ? warps[w] : 0;
          found += warps[w];
        }
        if (here) places[before + __popc(votes & ((1u << lane) - 1))] = j;
        __syncthreads();
      }
      for (int n = 0; n < found; ++n) {
        const T *source = rows + (long long)places[n] * s.INNER;
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
          const int column = first + i * THREADS + threadIdx.x;
          if (column < s.INNER) sums[i] += wide(source[column]);
        }
      }
      if (!few) __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int column = first + i * THREADS + threadIdx.x;
      if (column < s.INNER) store(table + id * s.INNER + column, sums[i]);
    }
  }
}
