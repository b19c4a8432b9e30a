// c[m, n] = sum over k of a[m, k] * b[n, k] for ROWS rows of a, as in the generation of text: b, the weights, is read once, and
// all of its bytes are on their way from memory as soon as possible. A team of DOWN warps has COLS neighbouring rows of b. A
// thread adds the products of every (32 * DOWN)-th EACH elements in order, AHEAD of them under way; then threads' sums are added
// pairwise, and the warps' in order. FINISHED(at, x) is what becomes of the sum x of place ``at``, by OTHERS, more tensors.

#include "few_rows.cuh"

constexpr int STEP = 32 * DOWN * EACH, TURNS = (K + STEP - 1) / STEP;
constexpr int WARPS = THREADS / 32, TEAMS = WARPS / DOWN, SUMS = ROWS * COLS;

extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(const T *__restrict__ a, const T *__restrict__ b, OTHERS C *__restrict__ c, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % DOWN;
  const int first = (blockIdx.x * TEAMS + warp / DOWN) * COLS, begin = (part * 32 + lane) * EACH;
  float sums[ROWS][COLS] = {};
  for (int turn = 0; turn < TURNS; turn += AHEAD) {
    Lanes<T, EACH> weights[AHEAD][COLS];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i)
#pragma unroll
      for (int j = 0; j < COLS; ++j) { // of rows that do not exist the last one, of k nothing
        const int k = (turn + i) * STEP + begin;
        weights[i][j] = {};
        if (k < K) weights[i][j] = Lanes<T, EACH>::read(b + (long long)min(first + j, N - 1) * K + k);
      }
    add_products<K, STEP>(sums, a, weights, turn, begin);
  }
  float whole = sum_of_warp(sums, lane); // of the thread's own result
  if constexpr (DOWN > 1) {
    __shared__ float held[WARPS][SUMS];
    if (lane < SUMS) held[warp][lane] = whole;
    __syncthreads();
    if (part || lane >= SUMS) return;
#pragma unroll
    for (int other = 1; other < DOWN; ++other) whole += held[warp + other][lane];
  }
  const int row = lane / COLS, column = first + lane % COLS, at = row * N + column;
  if (lane < SUMS && column < N) store(c + at, FINISHED(at, whole));
}
