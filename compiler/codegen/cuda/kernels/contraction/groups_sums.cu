// The gradient for the weights of a convolution with groups in 16 bits with channels last, in parts, on tensor cores: for each
// channel of dy, tap and channel of x of a group the sum over images and pixels. A block walks along tiles of pixels of one group;
// of each, dy and what its pixels read are copied to shared memory once. A warp has all channels of dy, and a share of the chunks of 8
// channels of all taps. Pixels beyond the image have zeros for dy: an inf or nan that they read makes a sum nan.
#include "groups.cuh"

constexpr int OUT_EACH = OUT / CHUNK, OUT_LINE = OUT_EACH | 1, GRADIENTS = PIXELS * OUT_LINE * 16;
constexpr int HIGH = (OUT + 15) / 16, PAIRS = ((CHUNKS + 1) / 2 + WARPS - 1) / WARPS; // of a warp: 16 channels of dy, pairs of chunks

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(
    const X *__restrict__ x, const X *__restrict__ dy, float *__restrict__ parts, NUMBERS) {
  const Numbers s = GIVEN;
  extern __shared__ __align__(128) unsigned char memory[];
  const unsigned patches = shared_address(memory);
  const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * PAIRS, half = lane / 16, group = blockIdx.x;
  wait_for_those_before();

  auto bring_tile = [&](int stage, int item) {
    const Tile tile = tile_of(s, item);
    const unsigned to = patches + stage * (PATCH + GRADIENTS);
    bring<HEIGHT, WIDTH, INTO>(to, x + group * INTO, tile.image, tile.y * STRIDE1 - LOW1, tile.x * STRIDE2 - LOW2, s.OTHER1, s.OTHER2,
                               s.READ);
    bring<DOWN, ACROSS, OUT>(to + PATCH, dy + group * OUT, tile.image, tile.y, tile.x, s.OWN1, s.OWN2, s.WRITTEN);
  };

  int chunks[PAIRS];
#pragma unroll
  for (int j = 0; j < PAIRS; ++j) chunks[j] = chunk_at(min((first + j) * 2 + half, CHUNKS - 1));
  float sums[HIGH][PAIRS * 2][4] = {};
  bring_tile(0, blockIdx.y);
  asm volatile("cp.async.commit_group;");
  for (int item = blockIdx.y, stage = 0; item < s.ITEMS; item += gridDim.y, stage ^= 1) {
    if (item + (int)gridDim.y < s.ITEMS) bring_tile(stage ^ 1, item + gridDim.y);
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 1;");
    __syncthreads(); // the tile is there for all
    const unsigned patch = patches + stage * (PATCH + GRADIENTS), gradients = patch + PATCH;
#pragma unroll 2
    for (int k = 0; k < PIXELS; k += 16) {
      unsigned left[HIGH][4], right[PAIRS][4];
#pragma unroll
      for (int i = 0; i < HIGH; ++i) {
        const int chunk = min(i * 2 + lane / 8 % 2, OUT_EACH - 1);
        load_matrices<true>(left[i], gradients + ((k + lane % 8 + half * 8) * OUT_LINE + chunk) * 16);
      }
#pragma unroll
      for (int j = 0; j < PAIRS; ++j) load_matrices<true>(right[j], patch + pixel_at(k + lane % 16) + chunks[j]);
#pragma unroll
      for (int i = 0; i < HIGH; ++i)
#pragma unroll
        for (int j = 0; j < PAIRS * 2; ++j) multiply(sums[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
    }
    __syncthreads(); // nobody reads the tile any more
  }

#pragma unroll
  for (int i = 0; i < HIGH; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int j = 0; j < PAIRS * 2; ++j) {
        const int out = i * 16 + lane / 4 + r * 8, chunk = first * 2 + j;
        if (out >= OUT || chunk >= CHUNKS) continue;
        const INDEX at = ((INDEX)(group * OUT + out) * CHUNKS + chunk) * CHUNK + lane % 4 * 2;
        store(parts + blockIdx.y * (INDEX)s.ELEMENTS + at, sums[i][j][r * 2], sums[i][j][r * 2 + 1]);
      }
}
