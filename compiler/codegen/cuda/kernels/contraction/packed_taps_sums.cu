// The gradient for the weights: parts[blockIdx.x, weight], each the sum over the tiles of a block. The many channels are the rows
// of tensor cores, the chunks of windows their columns, places what is summed. WARPS_M x WARPS_N warps hold the sums, each of DEEP
// rows x CHUNKS_OF_WARP chunks; WARPS_K of them share the places of a tile and add their sums at the end, in a fixed order.
// blockIdx.y says which channels, blockIdx.z which chunks.
#include "packed_taps.cuh"

constexpr int DY_LINE = (COLS / 8 + 1) * 16, DY_BYTES = PLACES * DY_LINE; // odd numbers of chunks: lines are in different banks
constexpr int STAGE = IMAGE_BYTES + DY_BYTES, COLUMNS = WARPS_N * CHUNKS_OF_WARP * 8;

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) KERNEL(
    const X *__restrict__ x, const X *__restrict__ dy, float *__restrict__ parts, NUMBERS) {
  const Numbers s = GIVEN;
  extern __shared__ __align__(128) unsigned char memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.y * COLS;
  const int warp_n = warp % WARPS_N, warp_m = warp / WARPS_N % WARPS_M, warp_k = warp / (WARPS_N * WARPS_M);
  const int begin = (blockIdx.z * WARPS_N + warp_n) * CHUNKS_OF_WARP;
  int chunks[(CHUNKS_OF_WARP + 1) / 2];
#pragma unroll
  for (int j = 0; j < (CHUNKS_OF_WARP + 1) / 2; ++j) chunks[j] = chunk_at(min(begin + 2 * j + lane / 16, CHUNKS - 1));

  auto bring = [&](unsigned char *stage, const Tile &tile) {
    const unsigned to = shared_address(stage + IMAGE_BYTES);
    for (int n = threadIdx.x; n < PLACES * COLS / 8; n += THREADS) {
      const int row = n / (COLS / 8), channel = first + n % (COLS / 8) * 8;
      const INDEX place = place_of(s, tile, row);
      const bool valid = place >= 0 && channel < s.CHANNELS;
      copy_async(to + row * DY_LINE + n % (COLS / 8) * 16, dy + (valid ? place * s.CHANNELS + channel : 0), valid);
    }
    asm volatile("cp.async.commit_group;");
  };

  wait_for_those_before();
  float sums[DEEP / 16][CHUNKS_OF_WARP][4] = {};
  Pixel held[EACH];
  int number = blockIdx.x, stage = 0;
  if (number < s.TILES) {
    bring(memory, tile_of(s, number));
    fetch(held, x, s, tile_of(s, number));
    put(memory, held);
  }
  for (; number < s.TILES; number += gridDim.x, stage ^= 1) {
    asm volatile("cp.async.wait_group 0;");
    __syncthreads(); // the tile is there for all, and nobody reads the one before
    const bool more = number + (int)gridDim.x < s.TILES;
    unsigned char *next = memory + (stage ^ 1) * STAGE;
    if (more) {
      bring(next, tile_of(s, number + gridDim.x));
      fetch(held, x, s, tile_of(s, number + gridDim.x));
    }
    const unsigned image = shared_address(memory + stage * STAGE), gradient = image + IMAGE_BYTES;
    for (int group = warp_k; group < PLACES / 16; group += WARPS_K) {
      unsigned left[DEEP / 16][4];
#pragma unroll
      for (int i = 0; i < DEEP / 16; ++i)
        load_matrices<true>(left[i], gradient + (group * 16 + lane % 8 + lane / 16 * 8) * DY_LINE +
                                         (warp_m * DEEP / 8 + i * 2 + lane / 8 % 2) * 16);
      const unsigned window = image + window_at(group * 16 + lane % 16);
#pragma unroll
      for (int j = 0; j < (CHUNKS_OF_WARP + 1) / 2; ++j) {
        unsigned right[4];
        load_matrices<true>(right, window + chunks[j]);
#pragma unroll
        for (int i = 0; i < DEEP / 16; ++i) {
          multiply(sums[i][2 * j], left[i], right[0], right[1]);
          if (2 * j + 1 < CHUNKS_OF_WARP) multiply(sums[i][2 * j + 1 < CHUNKS_OF_WARP ? 2 * j + 1 : 0], left[i], right[2], right[3]);
        }
      }
    }
    if (more) put(next, held);
  }

  float *together = reinterpret_cast<float *>(memory);
  __syncthreads();
  for (int turn = 0; turn < WARPS_K; ++turn) {
    if (warp_k == turn)
#pragma unroll
      for (int i = 0; i < DEEP / 16; ++i)
#pragma unroll
        for (int j = 0; j < CHUNKS_OF_WARP; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int row = warp_m * DEEP + i * 16 + e / 2 * 8 + lane / 4, chunk = begin + j, at = lane % 4 * 2 + e % 2;
            if (chunk >= CHUNKS) continue;
            const int place = row * COLUMNS + (warp_n * CHUNKS_OF_WARP + j) * 8 + at;
            const float sum = turn ? together[place] + sums[i][j][e] : sums[i][j][e];
            if (turn + 1 < WARPS_K) {
              together[place] = sum;
              continue;
            }
            const int channel = first + row, tap = chunk % RUNS * PAIR + at / STORED, few = at % STORED;
            if (channel >= s.CHANNELS || tap >= TAPS[2] || few >= FEW) continue;
            parts[(INDEX)blockIdx.x * s.WEIGHTS + ((INDEX)(channel * LINES + chunk / RUNS) * TAPS[2] + tap) * FEW + few] = sum;
          }
    __syncthreads();
  }
}
