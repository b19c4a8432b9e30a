// c[e] = sum over p of parts[p, e]: what the parts of a divided sum come to. A thread sums LANES elements of every DOWN-th
// part, in order, TOGETHER of them on their way from memory at a time; then DOWN threads' sums are added, the upper half to
// the lower half until one is left. FINISHED(at, x) is what becomes of the sum x of place ``at`` before it is written, by
// OTHERS, more tensors.

constexpr int ACROSS = THREADS / DOWN;

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const SUM *__restrict__ parts, OTHERS C *__restrict__ c, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
  const long long e = (blockIdx.x * (long long)ACROSS + across) * LANES;
  SUM sums[LANES] = {};
  if (e < s.ELEMENTS) {
    for (int first = down; first < s.PARTS; first += TOGETHER * DOWN) {
      Lanes<SUM, LANES> part[TOGETHER];
#pragma unroll
      for (int j = 0; j < TOGETHER; ++j) // behind the last part the last one again, which is not added
        part[j] = Lanes<SUM, LANES>::read(parts + min(first + j * DOWN, s.PARTS - 1) * s.ELEMENTS + e);
#pragma unroll
      for (int j = 0; j < TOGETHER; ++j)
#pragma unroll
        for (int i = 0; i < LANES; ++i) sums[i] = first + j * DOWN < s.PARTS ? sums[i] + part[j].x[i] : sums[i];
    }
  }
  if constexpr (DOWN > 1) {
    __shared__ SUM held[DOWN][ACROSS * LANES];
#pragma unroll
    for (int i = 0; i < LANES; ++i) held[down][across * LANES + i] = sums[i];
    for (int half = DOWN / 2; half; half /= 2) {
      __syncthreads();
      if (down < half)
#pragma unroll
        for (int i = 0; i < LANES; ++i) {
          sums[i] += held[down + half][across * LANES + i];
          held[down][across * LANES + i] = sums[i];
        }
    }
  }
  if (down || e >= s.ELEMENTS) return;
  Lanes<C, LANES> whole;
#pragma unroll
  for (int i = 0; i < LANES; ++i) store(whole.x + i, FINISHED(e + i, sums[i]));
  whole.write(c + e);
}
