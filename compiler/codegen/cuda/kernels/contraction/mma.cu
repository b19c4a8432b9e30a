// Contractions of 16-bit floats on tensor cores: c[z, m, n] = sum over k of a[z, m, k] * b[z, k, n], sums in f32.
//
// A block computes ROWS x COLS of c, a warp TALL x WIDE of it. Tiles of DEPTH values of k come to shared memory by
// asynchronous copies of 16 bytes, STAGES tiles in flight. An operand that is contiguous along k lies there as [side][k],
// one that is contiguous along its side as [k][side], each row's 16-byte chunks permuted by the row's number, so that eight
// rows of one chunk are in eight different banks for ldmatrix. The text in front of this file says how places are found by
// the numbers s, as for contract.cu: a_row(s, z, m), a_step(s, k), a_place(s, row, step), -1 where that counts as zero.
// FINISHED(at, x) is what becomes of the sum x of place ``at`` before it is written, by OTHERS, more tensors.
//
// SLICES teams of warps share the depth of a tile; their sums are added in order.

#include "tensor_cores.cuh"

constexpr int WARPS_N = COLS / WIDE, WARPS = (ROWS / TALL) * WARPS_N, THREADS = WARPS * SLICES * 32;
constexpr int STEPS = DEPTH / 16 / SLICES, UNROLLED = ROWS * COLS > 64 * 64 ? 1 : STEPS;
constexpr int CHUNK = 8; // elements of 16 bytes
constexpr int STAGE_A = ROWS * DEPTH, STAGE_B = COLS * DEPTH;

// Where chunk `chunk` of row `row` of a tile with rows of LENGTH elements lies, in bytes.
template <int LENGTH> __device__ __forceinline__ int chunk_at(int row, int chunk) {
  constexpr int PER_ROW = LENGTH / CHUNK, TOGETHER = PER_ROW < 8 ? 8 / PER_ROW : 1; // rows of as many banks as there are
  return (row * PER_ROW + (chunk ^ (row / TOGETHER & (PER_ROW < 8 ? PER_ROW - 1 : 7)))) * 16;
}

// What one thread brings of an operand's tile: chunks that are neighbours in memory go to neighbouring threads.
template <bool ALONG_K, int SIDE> struct Bringer {
  static constexpr int LENGTH = ALONG_K ? DEPTH : SIDE, PER_ROW = LENGTH / CHUNK;
  static constexpr int COUNT = SIDE * DEPTH / CHUNK / THREADS, STEP = THREADS / PER_ROW;
  static_assert(SIDE * DEPTH / CHUNK % THREADS == 0 && THREADS % PER_ROW == 0 && (PER_ROW % 8 == 0 || 8 % PER_ROW == 0), "");
  __device__ static int row(int i) { return threadIdx.x / PER_ROW + i * STEP; }
  __device__ static int chunk() { return threadIdx.x % PER_ROW; }
  __device__ static int side(int i) { return ALONG_K ? row(i) : chunk() * CHUNK; }
  __device__ static int deep(int i) { return ALONG_K ? chunk() * CHUNK : row(i); }
};

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(
    const A *__restrict__ a, const B *__restrict__ b, OTHERS C *__restrict__ c, NUMBERS) {
  const Numbers s = GIVEN;
  extern __shared__ __align__(128) unsigned char memory[];
  const unsigned tiles_a = shared_address(memory), tiles_b = tiles_a + STAGES * STAGE_A * 2;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % WARPS, slice = threadIdx.x / 32 / WARPS;
  const int warp_m = warp / WARPS_N * TALL, warp_n = warp % WARPS_N * WIDE;

  // Blocks that run at a time share rows and columns: bands of BAND rows of tiles, column by column.
  constexpr int BAND = 8;
  const int tiles_m = (s.M + ROWS - 1) / ROWS, tiles_n = (s.N + COLS - 1) / COLS;
  const int band = blockIdx.x / (BAND * tiles_n), in_band = blockIdx.x % (BAND * tiles_n);
  const int tall = min(BAND, tiles_m - band * BAND);
  const int m_first = (band * BAND + in_band % tall) * ROWS, n_first = in_band / tall * COLS;
  const int part = blockIdx.y, z = blockIdx.z;
  const int k_first = part * s.PART, k_last = min(s.K, k_first + s.PART);

  using BringA = Bringer<A_ALONG_K, ROWS>;
  using BringB = Bringer<B_ALONG_K, COLS>;
  constexpr int OWN_A = A_ALONG_K ? BringA::COUNT : 1, OWN_B = B_ALONG_K ? BringB::COUNT : 1;
  PlaceA rows_a[OWN_A];
  PlaceB rows_b[OWN_B];
#pragma unroll
  for (int i = 0; i < OWN_A; ++i) rows_a[i] = a_row(s, z, min(m_first + BringA::side(i), s.M - 1));
#pragma unroll
  for (int i = 0; i < OWN_B; ++i) rows_b[i] = b_row(s, z, min(n_first + BringB::side(i), s.N - 1));

  wait_for_those_before();
  auto bring = [&](int stage, int k) {
    PlaceA step_a;
    PlaceB step_b;
#pragma unroll
    for (int i = 0; i < BringA::COUNT; ++i) {
      const int at = k + BringA::deep(i);
      if (!A_ALONG_K || i == 0) step_a = a_step(s, min(at, s.K - 1));
      const long long place = a_place(s, rows_a[i % OWN_A], step_a);
      const bool valid = at < k_last && m_first + BringA::side(i) < s.M && place >= 0;
      copy_async(tiles_a + stage * STAGE_A * 2 + chunk_at<BringA::LENGTH>(BringA::row(i), BringA::chunk()),
                 a + (valid ? place : 0), valid);
    }
#pragma unroll
    for (int i = 0; i < BringB::COUNT; ++i) {
      const int at = k + BringB::deep(i);
      if (!B_ALONG_K || i == 0) step_b = b_step(s, min(at, s.K - 1));
      const long long place = b_place(s, rows_b[i % OWN_B], step_b);
      const bool valid = at < k_last && n_first + BringB::side(i) < s.N && place >= 0;
      copy_async(tiles_b + stage * STAGE_B * 2 + chunk_at<BringB::LENGTH>(BringB::row(i), BringB::chunk()),
                 b + (valid ? place : 0), valid);
    }
  };

  float sums[TALL / 16][WIDE / 8][4] = {};
  const int tiles = (max(k_last - k_first, 0) + DEPTH - 1) / DEPTH; // 0 where a sum has no products
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    if (stage < tiles) bring(stage, k_first + stage * DEPTH);
    asm volatile("cp.async.commit_group;");
  }
  for (int tile = 0; tile < tiles; ++tile) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
    __syncthreads(); // the tile is there for all, and nobody reads the one that comes next
    if (tile + STAGES - 1 < tiles) bring((tile + STAGES - 1) % STAGES, k_first + (tile + STAGES - 1) * DEPTH);
    asm volatile("cp.async.commit_group;");
    const unsigned tile_a = tiles_a + tile % STAGES * STAGE_A * 2, tile_b = tiles_b + tile % STAGES * STAGE_B * 2;
#pragma unroll UNROLLED // large tiles are as fast without on an H200, and compiled in three quarters of the time
    for (int step = 0; step < STEPS; ++step) {
      const int kk = step * SLICES + slice;
      unsigned left[TALL / 16][4], right[WIDE / 16][4];
#pragma unroll
      for (int i = 0; i < TALL / 16; ++i) {
        const int m = warp_m + i * 16;
        if constexpr (A_ALONG_K)
          load_matrices<false>(left[i], tile_a + chunk_at<DEPTH>(m + lane % 16, kk * 2 + lane / 16));
        else
          load_matrices<true>(left[i], tile_a + chunk_at<ROWS>(kk * 16 + lane % 8 + lane / 16 * 8, m / 8 + lane / 8 % 2));
      }
#pragma unroll
      for (int j = 0; j < WIDE / 16; ++j) {
        const int n = warp_n + j * 16;
        if constexpr (B_ALONG_K)
          load_matrices<false>(right[j], tile_b + chunk_at<DEPTH>(n + lane % 8 + lane / 16 * 8, kk * 2 + lane / 8 % 2));
        else
          load_matrices<true>(right[j], tile_b + chunk_at<COLS>(kk * 16 + lane % 16, n / 8 + lane / 16));
      }
#pragma unroll
      for (int i = 0; i < TALL / 16; ++i)
#pragma unroll
        for (int j = 0; j < WIDE / 8; ++j) multiply(sums[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
    }
  }
  asm volatile("cp.async.wait_group 0;");
  __syncthreads();

  if constexpr (SLICES > 1) { // each team's sums through shared memory
    constexpr int LINE = COLS + 4, QUADS = ROWS * COLS / 4;
    float *held = reinterpret_cast<float *>(memory);
    float *own = held + (slice * ROWS + warp_m + lane / 4) * LINE + warp_n + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < TALL / 16; ++i)
#pragma unroll
      for (int j = 0; j < WIDE / 8; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r) store(own + (i * 16 + r * 8) * LINE + j * 8, sums[i][j][r * 2], sums[i][j][r * 2 + 1]);
    __syncthreads();
    for (int quad = threadIdx.x; quad < QUADS; quad += THREADS) {
      const int row = quad / (COLS / 4), col = quad % (COLS / 4) * 4, m = m_first + row, n = n_first + col;
      if (m >= s.M) break;
      Lanes<C, 4> kept;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float x = held[row * LINE + col + i];
#pragma unroll
        for (int q = 1; q < SLICES; ++q) x += held[(q * ROWS + row) * LINE + col + i];
        if constexpr (FINISHES) x = n + i < s.N ? FINISHED(c_place(s, z, m, n + i), x) : x;
        store(kept.x + i, x);
      }
      C *to = c + part * s.TOTAL;
      if (WHOLE_LINES && n + 4 <= s.N) {
        kept.write(to + c_place(s, z, m, n));
      } else {
        for (int i = 0; i < 4 && n + i < s.N; ++i) to[c_place(s, z, m, n + i)] = kept.x[i];
      }
    }
    return;
  }

  // Through shared memory, so that whole rows are written 16 bytes a thread.
  constexpr int LINE = COLS + 16 / (int)sizeof(C);
  C *lines = reinterpret_cast<C *>(memory), *own = lines + (warp_m + lane / 4) * LINE + warp_n + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < TALL / 16; ++i)
#pragma unroll
    for (int j = 0; j < WIDE / 8; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float x = sums[i][j][r * 2], y = sums[i][j][r * 2 + 1];
        if constexpr (FINISHES) {
          const int m = m_first + warp_m + lane / 4 + i * 16 + r * 8, n = n_first + warp_n + lane % 4 * 2 + j * 8;
          if (m < s.M && n < s.N) x = FINISHED(c_place(s, z, m, n), x);
          if (m < s.M && n + 1 < s.N) y = FINISHED(c_place(s, z, m, n + 1), y);
        }
        store(own + (i * 16 + r * 8) * LINE + j * 8, x, y);
      }
  __syncthreads();
  constexpr int EACH = 16 / (int)sizeof(C), PER_LINE = COLS / EACH;
  for (int e = threadIdx.x; e < ROWS * PER_LINE; e += THREADS) {
    const int row = e / PER_LINE, col = e % PER_LINE * EACH, m = m_first + row, n = n_first + col;
    if (m >= s.M || n >= s.N) continue;
    const C *from = lines + row * LINE + col;
    if (WHOLE_LINES && n + EACH <= s.N) {
      *reinterpret_cast<uint4 *>(c + part * s.TOTAL + c_place(s, z, m, n)) = *reinterpret_cast<const uint4 *>(from);
    } else {
      for (int i = 0; i < EACH && n + i < s.N; ++i) c[part * s.TOTAL + c_place(s, z, m, n + i)] = from[i];
    }
  }
}
