// Zeros for a table of BYTES, 16 bytes at a time, and for the numbers in work that scatter_places.cu counts with.

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(unsigned char *__restrict__ table, int *work, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const Places p = places_of(work, s.COUNT, s.LENGTH, s.PART);
  const long long first = (long long)blockIdx.x * THREADS * EACH + threadIdx.x, whole = s.BYTES / 16;
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    if (first + i * THREADS < whole) reinterpret_cast<uint4 *>(table)[first + i * THREADS] = make_uint4(0, 0, 0, 0);
  }
  const long long at = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (at < s.BYTES % 16) table[whole * 16 + at] = 0;
  for (long long id = at; id < s.COUNT; id += (long long)gridDim.x * THREADS) p.counts[id] = 0;
  if (at == 0) *p.lost = *p.total = *p.many = 0;
}
