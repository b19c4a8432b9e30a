// The gradient for the weights: parts[blockIdx.x, weight], each the sum over the tiles of a block. The many channels are the rows
// of tensor cores, the chunks of windows their columns, places what is summed. WARPS_M x WARPS_N warps hold the sums, each of DEEP
// rows x EIGHTS times 8 columns, of one chunk, or of NEAR neighbours; WARPS_K of them share the places of a tile and add their sums
// at the end, in a fixed order. blockIdx.y says which channels, blockIdx.z which chunks. Places are the depth of both factors, along
// which ldmatrix turns elements of 16 bits; floats come one by one.
#include "packed_taps.cuh"

constexpr int DY_LINE = (COLS + 8) * sizeof(X), DY_BYTES = PLACES * DY_LINE; // what is read at once is in different banks
constexpr int STAGE = IMAGE_BYTES + DY_BYTES, COLUMNS = WARPS_N * EIGHTS * 8, DEPTH = 2 * RUN, NEAR = 8 / RUN;
constexpr bool WORDS = sizeof(X) == 4;
constexpr int READS = WORDS ? EIGHTS : (EIGHTS + 1) / 2; // of chunks, by a lane

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) KERNEL(
    const X *__restrict__ x, const X *__restrict__ dy, float *__restrict__ parts, NUMBERS) {
  const Numbers s = GIVEN;
  extern __shared__ __align__(128) unsigned char memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.y * COLS;
  const int warp_n = warp % WARPS_N, warp_m = warp / WARPS_N % WARPS_M, warp_k = warp / (WARPS_N * WARPS_M);
  const int begin = (blockIdx.z * WARPS_N + warp_n) * EIGHTS;
  int chunks[READS];
#pragma unroll
  for (int j = 0; j < READS; ++j)
    chunks[j] = chunk_at(min(begin * NEAR + 2 * j + lane / 16, CHUNKS - 1)) + (WORDS ? lane / 4 % 4 * 4 : 0);

  auto bring = [&](unsigned char *stage, const Tile &tile) {
    const unsigned to = shared_address(stage + IMAGE_BYTES);
    for (int n = threadIdx.x; n < PLACES * COLS / RUN; n += THREADS) {
      const int row = n / (COLS / RUN), channel = first + n % (COLS / RUN) * RUN;
      const INDEX place = place_of(s, tile, row);
      const bool valid = place >= 0 && channel < s.CHANNELS;
      copy_async(to + row * DY_LINE + n % (COLS / RUN) * 16, dy + (valid ? place * s.CHANNELS + channel : 0), valid);
    }
    asm volatile("cp.async.commit_group;");
  };

  wait_for_those_before();
  float sums[DEEP / 16][EIGHTS][4] = {};
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
    for (int group = warp_k; group < PLACES / DEPTH; group += WARPS_K) {
      const int place = group * DEPTH;
      unsigned left[DEEP / 16][4];
#pragma unroll
      for (int i = 0; i < DEEP / 16; ++i)
        if constexpr (WORDS)
#pragma unroll
          for (int r = 0; r < 4; ++r)
            left[i][r] = tf32(load_float(gradient + (place + lane % 4 + r / 2 * 4) * DY_LINE +
                                         (warp_m * DEEP + i * 16 + lane / 4 + r % 2 * 8) * 4));
        else
          load_matrices<true>(left[i], gradient + (place + lane % 8 + lane / 16 * 8) * DY_LINE +
                                           (warp_m * DEEP / 8 + i * 2 + lane / 8 % 2) * 16);
      const unsigned window = image + window_at(place + lane % (WORDS ? 4 : 16));
      const unsigned later = WORDS ? image + window_at(place + lane % 4 + 4) : window;
#pragma unroll
      for (int j = 0; j < EIGHTS; j += 2) {
        unsigned right[4];
        if constexpr (WORDS)
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            const int eight = j + r / 2 < EIGHTS ? j + r / 2 : j;
            if (r < 2 || eight > j) right[r] = __float_as_uint(load_float((r % 2 ? later : window) + chunks[eight]));
          }
        else
          load_matrices<true>(right, window + chunks[j / 2]);
#pragma unroll
        for (int i = 0; i < DEEP / 16; ++i) {
          multiply(sums[i][j], left[i], right[0], right[1]);
          if (j + 1 < EIGHTS) multiply(sums[i][j + 1 < EIGHTS ? j + 1 : 0], left[i], right[2], right[3]);
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
        for (int j = 0; j < EIGHTS; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int row = warp_m * DEEP + i * 16 + e / 2 * 8 + lane / 4, column = lane % 4 * 2 + e % 2;
            const int chunk = (begin + j) * NEAR + column / RUN, at = column % RUN;
            if (chunk >= CHUNKS) continue;
            const int place = row * COLUMNS + (warp_n * EIGHTS + j) * 8 + column;
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
