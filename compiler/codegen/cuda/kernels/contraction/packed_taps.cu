// The convolution: a warp computes 32 places x COLS of the many channels. Columns of tensor cores are dealt to channels so that a
// thread has 2 * TOGETHER adjacent ones, up to 16 bytes, which it stores at once. FINISHED(at, x) is what is stored for the sum x of
// place ``at``.
#include "packed_taps.cuh"

constexpr int STEPS = (CHUNKS + 1) / 2, TOGETHER = COLS % 32 || sizeof(X) == 4 ? 2 : 4;

__device__ __forceinline__ int channel_of(int column) {
  const int group = column / (8 * TOGETHER), of_group = column / 8 % TOGETHER;
  return (group * 4 + column % 8 / 2) * 2 * TOGETHER + of_group * 2 + column % 2;
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) KERNEL(
    const X *__restrict__ x, const X *__restrict__ w, OTHERS X *__restrict__ y, NUMBERS) {
  const Numbers s = GIVEN;
  extern __shared__ __align__(128) unsigned char memory[];
  X *weights = reinterpret_cast<X *>(memory + IMAGE_BYTES);
  const unsigned image = shared_address(memory), factors = shared_address(weights);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.y * COLS;
  wait_for_those_before();
  Pixel held[EACH];
  if ((int)blockIdx.x < s.TILES) fetch(held, x, s, tile_of(s, blockIdx.x));
#pragma unroll 4 // so many chunks are under way
  for (int n = threadIdx.x; n < STEPS * 2 * COLS; n += THREADS) {
    const int chunk = n / COLS, channel = first + channel_of(n % COLS), tap = chunk % RUNS * PAIR, line = chunk / RUNS;
    const X *from = w + ((INDEX)channel * LINES * TAPS[2] + line * TAPS[2] + tap) * FEW;
    Lanes<X, RUN> run;
#pragma unroll
    for (int i = 0; i < RUN; ++i) {
      const int of_run = i / STORED, few = i % STORED;
      const bool there = chunk < CHUNKS && tap + of_run < TAPS[2] && few < FEW && channel < s.CHANNELS;
      run.x[i] = there ? factor(from[of_run * FEW + few]) : X{};
    }
    run.write(weights + n * RUN);
  }

  for (int number = blockIdx.x; number < s.TILES; number += gridDim.x) {
    const Tile tile = tile_of(s, number);
    __syncthreads(); // all have read the tile before
    put(memory, held);
    __syncthreads();
    if (number + (int)gridDim.x < s.TILES) fetch(held, x, s, tile_of(s, number + gridDim.x)); // arrives during the products

    float sums[2][COLS / 8][4] = {};
    const unsigned windows[2] = {image + window_at(warp * 32 + lane % 16), image + window_at(warp * 32 + 16 + lane % 16)};
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      unsigned left[2][4], right[COLS / 16][4];
      const int chunk = lane < 16 ? chunk_at(2 * step) : chunk_at(2 * step + 1);
#pragma unroll
      for (int i = 0; i < 2; ++i) load_matrices<false>(left[i], windows[i] + chunk);
#pragma unroll
      for (int j = 0; j < COLS / 16; ++j)
        load_matrices<false>(right[j], factors + ((2 * step + lane / 8 % 2) * COLS + j * 16 + lane % 8 + lane / 16 * 8) * 16);
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < COLS / 8; ++j) multiply(sums[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
    }

#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const INDEX place = place_of(s, tile, warp * 32 + i * 16 + r * 8 + lane / 4);
        if (place < 0) continue;
#pragma unroll
        for (int group = 0; group < COLS / (8 * TOGETHER); ++group) {
          const int channel = first + (group * 4 + lane % 4) * 2 * TOGETHER;
          if (channel >= s.CHANNELS) continue;
          const INDEX at = place * s.CHANNELS + channel;
          struct alignas(sizeof(X) * 2 * TOGETHER) {
            X x[2 * TOGETHER];
          } made;
#pragma unroll
          for (int t = 0; t < TOGETHER; ++t) {
            const float(&sum)[4] = sums[i][group * TOGETHER + t];
            store(made.x + 2 * t, FINISHED(at + 2 * t, sum[2 * r]), FINISHED(at + 2 * t + 1, sum[2 * r + 1]));
          }
          *reinterpret_cast<decltype(made) *>(y + at) = made;
        }
      }
  }
}
