// table[ids[j]] += rows[j] for all j, into a table of zeros. work is what scatter_places.cu and scatter_order.cu make. The block of
// row j with rank 0 adds all rows of its id in the order of j. Of an id with more than PART rows, the block of the row with rank r
// adds rows r * PART and the PART - 1 behind it to a line of parts, which scatter_join.cu adds up. So every sum has one order.
// COUNT lines of INNER elements. An id that does not exist makes the table nan (nothing, where the dtype has no nan).

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ rows, const I *__restrict__ ids, int *work,
                                                                  T *__restrict__ table, SUM *__restrict__ parts, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const Places p = places_of(work, s.COUNT, s.LENGTH, s.PART);
  if (HAS_NAN && *p.lost) {
    const long long all = (long long)s.COUNT * s.INNER;
    for (long long e = (long long)blockIdx.x * THREADS + threadIdx.x; e < all; e += (long long)gridDim.x * THREADS) put_nan(table + e);
    return;
  }
  const int rank = p.ranks[blockIdx.x];
  if (rank < 0 || rank > s.LENGTH / s.PART) return;
  const long long id = ids[blockIdx.x];
  const int all = p.counts[id], start = p.starts[id];
  const bool few = all <= s.PART;
  if (rank * s.PART >= (few ? 1 : all)) return;
  const int left = all - rank * s.PART, count = left < s.PART ? left : s.PART;
  const int *mine = few ? p.places + start : p.order + start + rank * s.PART;
  __shared__ int places[MOST];
  for (int n = threadIdx.x; n < count; n += THREADS) {
    const int j = mine[n];
    int before = few ? 0 : n;
    for (int k = 0; few && k < count; ++k) before += mine[k] < j;
    places[before] = j;
  }
  __syncthreads();
  const long long line = few ? id : start / (s.PART / 2) + rank;
  for (int first = 0; first < s.INNER; first += THREADS * EACH) {
    SUM sums[EACH] = {};
    int n = 0;
    for (; n + AHEAD <= count; n += AHEAD) {  // loads do not wait for each other
      SUM found[AHEAD][EACH];
#pragma unroll
      for (int a = 0; a < AHEAD; ++a) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
          const int column = first + i * THREADS + threadIdx.x;
          found[a][i] = column < s.INNER ? wide(rows[(long long)places[n + a] * s.INNER + column]) : SUM(0);
        }
      }
#pragma unroll
      for (int a = 0; a < AHEAD; ++a) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) sums[i] += found[a][i];
      }
    }
    for (; n < count; ++n) {
#pragma unroll
      for (int i = 0; i < EACH; ++i) {
        const int column = first + i * THREADS + threadIdx.x;
        if (column < s.INNER) sums[i] += wide(rows[(long long)places[n] * s.INNER + column]);
      }
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int column = first + i * THREADS + threadIdx.x;
      if (column >= s.INNER) break;
      if (few) store(table + line * s.INNER + column, sums[i]);
      else parts[line * s.INNER + column] = sums[i];
    }
  }
}
