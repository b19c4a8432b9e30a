// The attention of few queries from SPLITS parts [stack, SPLITS, ROWS, FEATURES + 2]: sums of values, the largest score that
// was taken off, and the sum of weights. Parts are added in their order. A block has one query.

#define INFINITE __int_as_float(0x7F800000)

struct Layout {
  long long start, outer, inner;
  int row;
};

__device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const float *__restrict__ parts, T *__restrict__ y) {
  constexpr Layout at = Y;
  constexpr int STEP = ROWS * (FEATURES + 2);
  const int stack = blockIdx.x / ROWS, r = blockIdx.x % ROWS, f = threadIdx.x;
  wait_for_those_before();
  const float *const part = parts + (long long)stack * SPLITS * STEP + r * (FEATURES + 2);
  float most = -INFINITE, sum = 0, all = 0;
#pragma unroll 8
  for (int n = 0; n < SPLITS; ++n) most = fmaxf(most, part[n * STEP + FEATURES]);
  const float to = most == -INFINITE ? 0 : most;
#pragma unroll 8
  for (int n = 0; n < SPLITS; ++n) {
    const float scale = power_of_2(part[n * STEP + FEATURES] - to);
    all = __fmaf_rn(part[n * STEP + FEATURES + 1], scale, all);
    if (f < FEATURES) sum = __fmaf_rn(part[n * STEP + f], scale, sum);
  }
  const int head = stack * SHARE + r / QUERIES;
  const long long to_row = at.start + head / INNER * at.outer + head % INNER * at.inner + r % QUERIES * at.row;
  if (f < FEATURES) store(y + to_row + f, all == 0 ? 0.0f : sum / all);
}
