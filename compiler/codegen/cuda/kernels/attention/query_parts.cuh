// What the kernels of few queries and of their parts share: where rows lie, and how parts become the attention of a query.

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

// Where row 0 of a head begins; `stack` counts heads of q, HEADS of which in a row have one head of the tensor.
template <int HEADS> __device__ __forceinline__ long long begins(const Layout &of, int stack) {
  return of.start + stack / INNER * of.outer + stack % INNER / HEADS * of.inner;
}

// Where row `r` of the rows of a head of k begins; its rows are QUERIES of each of SHARE heads of q.
__device__ __forceinline__ long long row_of(const Layout &of, int stack, int r) {
  return begins<1>(of, stack * SHARE + r / QUERIES) + r % QUERIES * of.row;
}

// Feature `f` of a query from its SPLITS parts, added in their order; of threads that are not `here` nothing is read.
__device__ __forceinline__ float joined(const float *part, int f, bool here) {
  constexpr int STEP = ROWS * (FEATURES + 2);
  float most = -INFINITE, sum = 0, all = 0;
#pragma unroll 8
  for (int n = 0; n < SPLITS; ++n) most = fmaxf(most, part[n * STEP + FEATURES]);
  const float to = most == -INFINITE ? 0 : most;
#pragma unroll 8
  for (int n = 0; n < SPLITS; ++n) {
    const float scale = power_of_2(part[n * STEP + FEATURES] - to);
    all = __fmaf_rn(part[n * STEP + FEATURES + 1], scale, all);
    if (here) sum = __fmaf_rn(part[n * STEP + f], scale, sum);
  }
  return all == 0 ? 0.0f : sum / all;
}
