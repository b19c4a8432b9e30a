// Convolutions of an image of FEW channels on tensor cores, in 16 bits or of floats that are rounded to TF32. The taps of a line of
// a window are neighbours in memory, so its elements, PAIR taps with STORED channels each, are a chunk of 16 bytes of the sum: of
// RUN elements. A tile of the image comes to shared memory once, and ldmatrix reads the chunks of neighbouring windows where they
// lie. They must begin at multiples of 16 bytes: if the stride is no multiple of PAIR, COPIES of the tile are there, each moved by
// STEP places. If it is PHASES times PAIR, every PHASES-th chunk of a line is together, so that windows side by side are in different
// banks.
//
// A block computes TALL x WIDE places of the result at a time. Filled-up taps and channels have weights of zero.
#include "tensor_cores.cuh"

constexpr int RUN = 16 / sizeof(X), PAIR = RUN / STORED, RUNS = (TAPS[2] + PAIR - 1) / PAIR;
constexpr int LINES = TAPS[0] * TAPS[1], CHUNKS = LINES * RUNS;
constexpr int PLACES = TALL * WIDE, STEP = PAIR / COPIES;
constexpr int IMAGE_TALL = (TALL - 1) * STRIDE[1] + TAPS[1]; // lines of the image for one line of taps[0]
constexpr int IMAGE_LINES = TAPS[0] * IMAGE_TALL, IMAGE_WIDE = (WIDE - 1) * STRIDE[2] + RUNS * PAIR;
constexpr int IMAGE_BYTES = IMAGE_LINES * COPIES * LINE * 16; // LINE: chunks of a line of a copy

struct alignas(sizeof(X) * STORED) Pixel {
  X x[STORED];
};

// An element as tensor cores read it.
__device__ __forceinline__ bf16 factor(bf16 x) { return x; }
__device__ __forceinline__ f16 factor(f16 x) { return x; }
__device__ __forceinline__ float factor(float x) { return __uint_as_float(tf32(x)); }

// The place of a chunk in a line, by phases.
__device__ __forceinline__ constexpr int in_line(int chunk) { return chunk % PHASES * (LINE / PHASES) + chunk / PHASES; }
// Where a chunk of the window lies, and where the window of a place of the tile, in bytes; chunks from CHUNKS on have no weights.
__device__ __forceinline__ constexpr int chunk_at(int chunk) {
  const int line = chunk < CHUNKS ? chunk / RUNS : 0;
  return ((line / TAPS[1] * IMAGE_TALL + line % TAPS[1]) * COPIES * LINE + in_line(chunk < CHUNKS ? chunk % RUNS : 0)) * 16;
}
__device__ __forceinline__ int window_at(int place) {
  const int begin = place % WIDE * STRIDE[2];
  return ((place / WIDE * STRIDE[1] * COPIES + begin % PAIR / STEP) * LINE + in_line(begin / PAIR)) * 16;
}

struct Tile {
  int image, at0, at1, at2;
};
__device__ __forceinline__ Tile tile_of(const Numbers &s, int tile) {
  const int line = quotient(tile, s.ACROSS_magic, s.ACROSS_shift), sheet = quotient(line, s.DOWN_magic, s.DOWN_shift);
  const int image = quotient(sheet, s.OWN0_magic, s.OWN0_shift);
  return {image, sheet - image * s.OWN0, (line - sheet * s.DOWN) * TALL, (tile - line * s.ACROSS) * WIDE};
}
// The place of the tile in the result; -1 outside.
__device__ __forceinline__ INDEX place_of(const Numbers &s, const Tile &tile, int place) {
  const int at1 = tile.at1 + place / WIDE, at2 = tile.at2 + place % WIDE;
  if (at1 >= s.OWN1 || at2 >= s.OWN2) return -1;
  return (((INDEX)tile.image * s.OWN0 + tile.at0) * s.OWN1 + at1) * s.OWN2 + at2;
}

// What one thread of a block of THREADS brings of the image.
constexpr int EACH = (IMAGE_LINES * IMAGE_WIDE + THREADS - 1) / THREADS;

__device__ __forceinline__ void fetch(Pixel (&held)[EACH], const X *x, const Numbers &s, const Tile &tile) {
  const int begin0 = tile.at0 * STRIDE[0] - EDGE[0], begin1 = tile.at1 * STRIDE[1] - EDGE[1];
  const int begin2 = tile.at2 * STRIDE[2] - EDGE[2];
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int n = threadIdx.x + i * THREADS, line = n / IMAGE_WIDE;
    const int from0 = begin0 + line / IMAGE_TALL, from1 = begin1 + line % IMAGE_TALL, from2 = begin2 + n % IMAGE_WIDE;
    const bool inside = (unsigned)from0 < (unsigned)s.OTHER0 && (unsigned)from1 < (unsigned)s.OTHER1 &&
                        (unsigned)from2 < (unsigned)s.OTHER2 && line < IMAGE_LINES;
    held[i] = {};
    if (!inside) continue;
    const X *from = x + ((((INDEX)tile.image * s.OTHER0 + from0) * s.OTHER1 + from1) * s.OTHER2 + from2) * FEW;
    if constexpr (FEW == STORED)
      held[i] = *reinterpret_cast<const Pixel *>(from);
    else
#pragma unroll
      for (int f = 0; f < FEW; ++f) held[i].x[f] = from[f];
  }
}

__device__ __forceinline__ void put(unsigned char *image, const Pixel (&held)[EACH]) {
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int n = threadIdx.x + i * THREADS, line = n / IMAGE_WIDE;
    if (line >= IMAGE_LINES) break;
    Pixel pixel;
#pragma unroll
    for (int f = 0; f < STORED; ++f) pixel.x[f] = factor(held[i].x[f]);
#pragma unroll
    for (int copy = 0; copy < COPIES; ++copy) {
      const int at = n % IMAGE_WIDE - copy * STEP;
      if (at < 0 || at >= LINE * PAIR) continue;
      reinterpret_cast<Pixel *>(image + ((line * COPIES + copy) * LINE + in_line(at / PAIR)) * 16)[at % PAIR] = pixel;
    }
  }
}
