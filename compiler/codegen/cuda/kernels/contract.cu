// c[z, m, n] = sum over k of a[z, m, k] * b[z, k, n], where z, m, n and k are groups of axes and an operand's place is any
// sum of strides, with coordinates that may fall outside of it and then count as zero. Matrix products and convolutions
// with their gradients alike.
//
// A block computes ROWS x COLS of c. DEPTH values of k at a time go to shared memory, two buffers in turns; a thread keeps
// TALL x WIDE sums in registers, in order of k. The text in front of this file says how places are found by the numbers s:
//   a_row(s, z, m), a_step(s, k), a_place(s, row, step), -1 where that counts as zero, and the same of b;
//   c_place(s, z, m, n);
//   FINISHED(at, x), what becomes of the sum x of place ``at`` before it is written, by OTHERS, more tensors.

constexpr int THREADS = (ROWS / TALL) * (COLS / WIDE);
constexpr int PAD = 4;

template <int SIDE> struct Tile {
  static constexpr int COUNT = SIDE * DEPTH / THREADS; // elements a thread brings
  static_assert(SIDE * DEPTH % THREADS == 0 && THREADS % DEPTH == 0 && (THREADS % SIDE == 0 || SIDE % THREADS == 0), "");
};

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const A *__restrict__ a, const B *__restrict__ b, OTHERS C *__restrict__ c,
                                                                  NUMBERS) {
  const Numbers s = GIVEN;
  __shared__ alignas(16) SUM tile_a[2][DEPTH][ROWS + PAD];
  __shared__ alignas(16) SUM tile_b[2][DEPTH][COLS + PAD];
  const int thread = threadIdx.x;
  const int tiles_m = (s.M + ROWS - 1) / ROWS;
  const int m_first = blockIdx.x % tiles_m * ROWS, n_first = blockIdx.x / tiles_m * COLS;
  const int part = blockIdx.y, z = blockIdx.z;
  const int k_first = part * s.PART, k_last = min(s.K, k_first + s.PART);

  // Neighbouring threads bring neighbours in memory: along k, or along the tile's side.
  constexpr int COUNT_A = Tile<ROWS>::COUNT, COUNT_B = Tile<COLS>::COUNT;
  auto side_a = [&](int i) { return A_ALONG_K ? thread / DEPTH + i * (THREADS / DEPTH) : (thread + i * THREADS) % ROWS; };
  auto deep_a = [&](int i) { return A_ALONG_K ? thread % DEPTH : (thread + i * THREADS) / ROWS; };
  auto side_b = [&](int i) { return B_ALONG_K ? thread / DEPTH + i * (THREADS / DEPTH) : (thread + i * THREADS) % COLS; };
  auto deep_b = [&](int i) { return B_ALONG_K ? thread % DEPTH : (thread + i * THREADS) / COLS; };
  constexpr int OWN_A = A_ALONG_K ? COUNT_A : (THREADS % ROWS == 0 ? 1 : COUNT_A);
  constexpr int OWN_B = B_ALONG_K ? COUNT_B : (THREADS % COLS == 0 ? 1 : COUNT_B);
  PlaceA rows_a[OWN_A];
  PlaceB rows_b[OWN_B];
#pragma unroll
  for (int i = 0; i < OWN_A; ++i) rows_a[i] = a_row(s, z, min(m_first + side_a(i), s.M - 1));
#pragma unroll
  for (int i = 0; i < OWN_B; ++i) rows_b[i] = b_row(s, z, min(n_first + side_b(i), s.N - 1));

  wait_for_those_before();
  SUM held_a[COUNT_A], held_b[COUNT_B];
  auto fetch = [&](int k) {
#pragma unroll
    for (int i = 0; i < COUNT_A; ++i) {
      int at = k + deep_a(i);
      INDEX place = at < k_last ? a_place(s, rows_a[i % OWN_A], a_step(s, at)) : INDEX(-1);
      held_a[i] = place >= 0 ? wide(a[place]) : SUM(0);
    }
#pragma unroll
    for (int i = 0; i < COUNT_B; ++i) {
      int at = k + deep_b(i);
      INDEX place = at < k_last ? b_place(s, rows_b[i % OWN_B], b_step(s, at)) : INDEX(-1);
      held_b[i] = place >= 0 ? wide(b[place]) : SUM(0);
    }
  };
  auto put = [&](int buffer) {
#pragma unroll
    for (int i = 0; i < COUNT_A; ++i) tile_a[buffer][deep_a(i)][side_a(i)] = held_a[i];
#pragma unroll
    for (int i = 0; i < COUNT_B; ++i) tile_b[buffer][deep_b(i)][side_b(i)] = held_b[i];
  };

  // A thread's rows and columns come in fours, spread over the tile, so that a warp reads each bank once.
  const int across = thread % (COLS / WIDE), down = thread / (COLS / WIDE);
  auto row = [&](int i) { return i / 4 * (ROWS / TALL * 4) + down * 4 + i % 4; };
  auto col = [&](int j) { return j / 4 * (COLS / WIDE * 4) + across * 4 + j % 4; };
  SUM sums[TALL][WIDE] = {};
  fetch(k_first);
  put(0);
  __syncthreads();
  int buffer = 0;
  for (int k = k_first; k < k_last; k += DEPTH) {
    if (k + DEPTH < k_last) fetch(k + DEPTH);
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
      SUM left[TALL], right[WIDE];
#pragma unroll
      for (int i = 0; i < TALL; ++i) left[i] = tile_a[buffer][d][row(i)];
#pragma unroll
      for (int j = 0; j < WIDE; ++j) right[j] = tile_b[buffer][d][col(j)];
#pragma unroll
      for (int i = 0; i < TALL; ++i)
#pragma unroll
        for (int j = 0; j < WIDE; ++j) sums[i][j] = fused(left[i], right[j], sums[i][j]);
    }
    if (k + DEPTH < k_last) {
      put(buffer ^ 1);
      __syncthreads();
      buffer ^= 1;
    }
  }
#pragma unroll
  for (int i = 0; i < TALL; ++i) {
    const int m = m_first + row(i);
#pragma unroll
    for (int j = 0; j < WIDE; ++j) {
      const int n = n_first + col(j);
      if (m < s.M && n < s.N) {
        const INDEX at = c_place(s, z, m, n);
        store(c + part * s.TOTAL + at, FINISHED(at, sums[i][j]));
      }
    }
  }
}
