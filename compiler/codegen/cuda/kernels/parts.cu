// c[e] = sum over p of parts[p, e]: what the parts of a divided sum come to. A thread sums LANES elements of every DOWN-th
// part, in order; then DOWN threads' sums are added, the upper half to the lower half until one is left. FINISHED(at, x) is
// what becomes of the sum x of place ``at`` before it is written, by OTHERS, more tensors.

constexpr int ACROSS = THREADS / DOWN;

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const SUM *__restrict__ parts, OTHERS C *__restrict__ c, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
  const long long e = (blockIdx.x * (long long)ACROSS + across) * LANES;
  SUM sums[LANES] = {};
  if (e < s.ELEMENTS) {
#pragma unroll 8
    for (int p = down; p < s.PARTS; p += DOWN) {
      const auto part = Lanes<SUM, LANES>::read(parts + p * s.ELEMENTS + e);
#pragma unroll
      for (int i = 0; i < LANES; ++i) sums[i] += part.x[i];
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
