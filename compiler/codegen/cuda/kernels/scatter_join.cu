// The lines of parts of each id with more than PART rows, added up in their order: a block has THREADS columns of an id.

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(int *work, const SUM *__restrict__ parts, T *__restrict__ table, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const Places p = places_of(work, s.COUNT, s.LENGTH, s.PART);
  const int blocks = (s.INNER + THREADS - 1) / THREADS, n = blockIdx.x / blocks;
  const int column = blockIdx.x % blocks * THREADS + threadIdx.x;
  if (n >= *p.many || (HAS_NAN && *p.lost) || column >= s.INNER) return;
  const long long id = p.longs[n];
  const SUM *line = parts + (long long)(p.starts[id] / (s.PART / 2)) * s.INNER + column;
  const int count = (p.counts[id] + s.PART - 1) / s.PART;
  SUM sum = 0;
#pragma unroll 8
  for (int k = 0; k < count; ++k) sum += line[(long long)k * s.INNER];
  store(table + id * s.INNER + column, sum);
}
