// Sorts tiles of lines x [., COUNT] and writes the first KEEP elements of each, of all tiles of a line one after the other:
// a block for each tile. GIVEN_PLACES: the elements' places are read, else an element's place is its own.
#include "radix.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ x,
#if GIVEN_PLACES
                                                             const int *__restrict__ from,
#endif
                                                             T *__restrict__ values, int *__restrict__ places, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  __shared__ Tile tile;
  const int tiles = (s.COUNT + TILE - 1) / TILE;
  const long long line = blockIdx.x / tiles;
  const int start = blockIdx.x % tiles * TILE, count = s.COUNT - start < TILE ? s.COUNT - start : TILE;
  x += line * s.COUNT + start;
  const int mine = threadIdx.x / 32 * 32 * ITEMS + threadIdx.x % 32;
  KEY keys[ITEMS];
  unsigned short at[ITEMS];
#pragma unroll
  for (int j = 0; j < ITEMS; ++j) {
    const int e = mine + 32 * j;
    keys[j] = e < count ? ordered(x[e]) : ~KEY(0);  // what is missing stays last
    at[j] = e;
  }
#pragma unroll 1
  for (int shift = 0; shift < BITS; shift += 8) {
    arrange(tile, keys, at, shift);
    if (shift + 8 < BITS) {
#pragma unroll
      for (int j = 0; j < ITEMS; ++j) {
        keys[j] = tile.keys[mine + 32 * j];
        at[j] = tile.places[mine + 32 * j];
      }
    }
  }
  const int last = (tiles - 1) * TILE, rest = s.COUNT - last < s.KEEP ? s.COUNT - last : s.KEEP;
  const long long to = line * ((long long)(tiles - 1) * s.KEEP + rest) + (long long)(start / TILE) * s.KEEP;
  const int kept = count < s.KEEP ? count : s.KEEP;
  for (int e = threadIdx.x; e < kept; e += THREADS) {
    const int source = tile.places[e];
    values[to + e] = x[source];
#if GIVEN_PLACES
    places[to + e] = from[line * s.COUNT + start + source];
#else
    places[to + e] = start + source;
#endif
  }
}
