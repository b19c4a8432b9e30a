// A convolution with groups in 16 bits with channels last, or its gradient for x (BACK), on tensor cores; sums in f32. A block
// computes tiles of pixels of one group: what they read is copied to shared memory once, and each tap is a product of it. The sum runs
// over chunks of 8 channels of all taps, two at a time. The gradient is that of a class of pixels, STEP apart, which use some of the
// taps, in reverse.
// FINISHED(at, x) is what is stored for the sum x of place ``at``.
#include "groups.cuh"

constexpr int ROWS = PIXELS / WARPS, PAIRS = (OUT + 15) / 16, STEPS = (CHUNKS + 1) / 2; // of a warp
// Weights: [OUT][chunks of all taps], or for the gradient [taps and INTO][chunks of OUT].
constexpr int WEIGHTS = BACK ? TAPS * INTO : OUT, WEIGHT_EACH = BACK ? OUT / CHUNK : CHUNKS, WEIGHT_LINE = WEIGHT_EACH | 1;

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(
    const X *__restrict__ x, const X *__restrict__ w, OTHERS X *__restrict__ y, NUMBERS) {
  const Numbers s = GIVEN;
  extern __shared__ __align__(128) unsigned char memory[]; // a chunk of zeros, weights, patches
  const unsigned zeros = shared_address(memory), weights = zeros + 16, patches = weights + WEIGHTS * WEIGHT_LINE * 16;
  const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * ROWS, half = lane / 16, group = blockIdx.x;
  wait_for_those_before();

  if (threadIdx.x == 0) *reinterpret_cast<uint4 *>(memory) = make_uint4(0, 0, 0, 0);
  for (int n = threadIdx.x; n < WEIGHTS * WEIGHT_EACH; n += THREADS) {
    const int row = n / WEIGHT_EACH, chunk = n % WEIGHT_EACH;
    const int tap = row / INTO, used = (FIRST1 + tap / TAPS2 * BY1) * EVERY2 + FIRST2 + tap % TAPS2 * BY2;
    const int line = BACK ? (group * INTO + row % INTO) * (EVERY1 * EVERY2) + used : group * OUT + row;
    copy_async(weights + (row * WEIGHT_LINE + chunk) * 16, w + ((INDEX)line * WEIGHT_EACH + chunk) * CHUNK, true);
  }
  auto bring_tile = [&](int stage, int item) {
    const Tile tile = tile_of(s, item);
    bring<HEIGHT, WIDTH, INTO>(patches + stage * PATCH, x + group * INTO, tile.image, tile.y * STRIDE1 - LOW1,
                               tile.x * STRIDE2 - LOW2, s.OTHER1, s.OTHER2, s.READ);
  };

  bring_tile(0, blockIdx.y);
  asm volatile("cp.async.commit_group;");
  for (int item = blockIdx.y, stage = 0; item < s.ITEMS; item += gridDim.y, stage ^= 1) {
    if (item + (int)gridDim.y < s.ITEMS) bring_tile(stage ^ 1, item + gridDim.y);
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 1;");
    __syncthreads(); // the patch is there for all

    float sums[ROWS / 16][OUT / CHUNK][4] = {};
#pragma unroll
    for (int k = 0; k < STEPS; ++k) {
      unsigned left[ROWS / 16][4], right[PAIRS][4];
      const bool beyond = k * 2 + 1 == CHUNKS; // the second chunk of this step
      const int from = half ? chunk_at(k * 2 + 1) : chunk_at(k * 2);
#pragma unroll
      for (int i = 0; i < ROWS / 16; ++i) {
        const unsigned own = patches + stage * PATCH + pixel_at(first + i * 16 + lane % 16) + from;
        load_matrices<false>(left[i], beyond && half ? zeros : own);
      }
#pragma unroll
      for (int j = 0; j < PAIRS; ++j) {
        if constexpr (BACK) {
          const int row = k * 16 + lane % 16, chunk = min(j * 2 + half, OUT / CHUNK - 1);
          load_matrices<true>(right[j], beyond && lane % 16 >= 8 ? zeros : weights + (row * WEIGHT_LINE + chunk) * 16);
        } else {
          const int row = min(j * 16 + lane % 8 + half * 8, OUT - 1), chunk = k * 2 + lane / 8 % 2;
          load_matrices<false>(right[j], beyond && lane / 8 % 2 ? zeros : weights + (row * WEIGHT_LINE + chunk) * 16);
        }
      }
#pragma unroll
      for (int i = 0; i < ROWS / 16; ++i)
#pragma unroll
        for (int j = 0; j < OUT / CHUNK; ++j) multiply(sums[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
    }
    __syncthreads(); // nobody reads the patch any more

    const Tile tile = tile_of(s, item);
#pragma unroll
    for (int i = 0; i < ROWS / 16; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int pixel = first + i * 16 + lane / 4 + r * 8, down = tile.y + pixel / ACROSS, across = tile.x + pixel % ACROSS;
        if (down >= s.OWN1 || across >= s.OWN2) continue;
        const INDEX to = ((INDEX)tile.image * s.WHOLE1 + s.START1 + down * s.STEP1) * s.WHOLE2 + s.START2 + across * s.STEP2;
        const INDEX at = to * s.WRITTEN + group * OUT + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < OUT / CHUNK; ++j)
          store(y + at + j * CHUNK, FINISHED(at + j * CHUNK, sums[i][j][r * 2]), FINISHED(at + j * CHUNK + 1, sums[i][j][r * 2 + 1]));
      }
  }
}
