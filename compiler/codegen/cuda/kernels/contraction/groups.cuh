// What both kernels of convolutions with groups do: tiles of DOWN x ACROSS pixels, and the copies of what they read. A chunk is 16
// bytes, 8 channels. In shared memory, a place has an odd number of chunks, so eight neighbours are in different banks for ldmatrix.
#include "tensor_cores.cuh"

constexpr int CHUNK = 8, THREADS = WARPS * 32, PIXELS = DOWN * ACROSS, TAPS = TAPS1 * TAPS2;
constexpr int HEIGHT = (DOWN - 1) * STRIDE1 + (TAPS1 - 1) * GAP1 + 1, WIDTH = (ACROSS - 1) * STRIDE2 + (TAPS2 - 1) * GAP2 + 1;
constexpr int EACH = INTO / CHUNK, LINE = EACH | 1, CHUNKS = TAPS * EACH; // of a place, and of all taps
constexpr int PATCH = HEIGHT * WIDTH * LINE * 16;

struct Tile {
  int image, y, x; // the first pixel
};
__device__ __forceinline__ Tile tile_of(const Numbers &s, int item) {
  const int line = quotient(item, s.COLUMNS_magic, s.COLUMNS_shift), image = quotient(line, s.LINES_magic, s.LINES_shift);
  return {image, (line - image * s.LINES) * DOWN, (item - line * s.COLUMNS) * ACROSS};
}

// HIGH x BROAD places of an image from (y, x) on, CHANNELS of each; zeros outside of the image.
template <int HIGH, int BROAD, int CHANNELS>
__device__ __forceinline__ void bring(unsigned to, const X *from, int image, int y, int x, int height, int width, int channels) {
  constexpr int OWN = CHANNELS / CHUNK;
#pragma unroll 4
  for (int n = threadIdx.x; n < HIGH * BROAD * OWN; n += THREADS) {
    const int place = n / OWN, chunk = n % OWN, down = y + place / BROAD, across = x + place % BROAD;
    const bool valid = (unsigned)down < (unsigned)height && (unsigned)across < (unsigned)width;
    const INDEX at = (((INDEX)image * height + down) * width + across) * channels + chunk * CHUNK;
    copy_async(to + (place * (OWN | 1) + chunk) * 16, from + (valid ? at : 0), valid);
  }
}

// Where a pixel of the tile begins to read, and where a chunk of all taps is from there, in bytes.
__device__ __forceinline__ constexpr int pixel_at(int pixel) {
  return (pixel / ACROSS * STRIDE1 * WIDTH + pixel % ACROSS * STRIDE2) * LINE * 16;
}
__device__ __forceinline__ constexpr int chunk_at(int chunk) {
  const int tap = chunk / EACH;
  return ((tap / TAPS2 * GAP1 * WIDTH + tap % TAPS2 * GAP2) * LINE + chunk % EACH) * 16;
}
