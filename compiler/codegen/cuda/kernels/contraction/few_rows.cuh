// Products of few rows of a with rows of weights, as few_rows.cu and the stages of a chain make them.

// Adds the products of a turn in order: of COUNT pieces, STEP elements apart, of HEIGHT rows of a and WIDTH rows of weights.
template <int LENGTH, int STEP, int HEIGHT, int WIDTH, int COUNT, class T, int EACH>
__device__ __forceinline__ void add_products(float (&sums)[HEIGHT][WIDTH], const T *a, const Lanes<T, EACH> (&weights)[COUNT][WIDTH],
                                             int turn, int begin) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int k = (turn + i) * STEP + begin;
#pragma unroll
    for (int r = 0; r < HEIGHT; ++r) {
      Lanes<T, EACH> own = {};
      if (k < LENGTH) own = Lanes<T, EACH>::read(a + r * LENGTH + k);
#pragma unroll
      for (int j = 0; j < WIDTH; ++j)
#pragma unroll
        for (int e = 0; e < EACH; ++e) sums[r][j] = __fmaf_rn(wide(own.x[e]), wide(weights[i][j].x[e]), sums[r][j]);
    }
  }
}

// Adds the sums of a warp's threads pairwise: thread r * WIDTH + j gets that of row r and column j, the others get 0.
template <int HEIGHT, int WIDTH> __device__ __forceinline__ float sum_of_warp(float (&sums)[HEIGHT][WIDTH], int lane) {
  float whole = 0;
#pragma unroll
  for (int r = 0; r < HEIGHT; ++r)
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
#pragma unroll
      for (int half = 16; half; half /= 2) sums[r][j] += __shfl_xor_sync(0xFFFFFFFFu, sums[r][j], half);
      if (lane == r * WIDTH + j) whole = sums[r][j];
    }
  return whole;
}
