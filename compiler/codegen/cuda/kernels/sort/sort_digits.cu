// A pass of a sort of lines [., COUNT] by the digit that begins at bit SHIFT. STEP 0 counts the digits of each tile, STEP 1
// sums a digit's counts over the tiles before, STEP 2 puts each element into its place: those of lesser digits come before
// it, and those of its digit in earlier tiles. counts [., DIGITS, tiles], totals [., DIGITS].
#include "radix.cuh"

#if STEP == 0
extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ x, int *__restrict__ counts, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  __shared__ int found[DIGITS];
  const int tiles = (s.COUNT + TILE - 1) / TILE;
  const long long line = blockIdx.x / tiles;
  const int number = blockIdx.x % tiles, start = number * TILE, count = s.COUNT - start < TILE ? s.COUNT - start : TILE;
  x += line * s.COUNT + start;
  found[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll
  for (int j = 0; j < ITEMS; ++j) {
    const int e = threadIdx.x + THREADS * j;
    if (e < count) atomicAdd(found + unsigned(ordered(x[e]) >> s.SHIFT) % DIGITS, 1);
  }
  __syncthreads();
  counts[(line * DIGITS + threadIdx.x) * tiles + number] = found[threadIdx.x];
}
#elif STEP == 1
extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(int *__restrict__ counts, int *__restrict__ totals, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const int tiles = (s.COUNT + TILE - 1) / TILE, lane = threadIdx.x % 32;
  const long long number = (long long)blockIdx.x * WARPS + threadIdx.x / 32;  // a warp for each digit of a line
  counts += number * tiles;
  int all = 0;
  for (int first = 0; first < tiles; first += 32) {
    const int at = first + lane, mine = at < tiles ? counts[at] : 0;
    int sum = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFu, sum, step);
      if (lane >= step) sum += other;
    }
    if (at < tiles) counts[at] = all + sum - mine;
    all += __shfl_sync(0xFFFFFFFFu, sum, 31);
  }
  if (lane == 0) totals[number] = all;
}
#else
extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ x,
#if GIVEN_PLACES
                                                             const int *__restrict__ from,
#endif
                                                             const int *__restrict__ counts, const int *__restrict__ totals,
                                                             T *__restrict__ values, int *__restrict__ places, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  __shared__ Tile tile;
  const int tiles = (s.COUNT + TILE - 1) / TILE;
  const long long line = blockIdx.x / tiles, base = line * s.COUNT;
  const int number = blockIdx.x % tiles, start = number * TILE, count = s.COUNT - start < TILE ? s.COUNT - start : TILE;
  const int mine = threadIdx.x / 32 * 32 * ITEMS + threadIdx.x % 32;
  KEY keys[ITEMS];
  unsigned short at[ITEMS];
#pragma unroll
  for (int j = 0; j < ITEMS; ++j) {
    const int e = mine + 32 * j;
    keys[j] = e < count ? ordered(x[base + start + e]) : ~KEY(0);  // what is missing comes last in the tile
    at[j] = e;
  }
  arrange(tile, keys, at, s.SHIFT);
  const int lesser = before_me(totals[line * DIGITS + threadIdx.x], tile.warps);
  const int earlier = counts[(line * DIGITS + threadIdx.x) * tiles + number];
  tile.starts[threadIdx.x] = lesser + earlier - tile.starts[threadIdx.x];
  __syncthreads();
  for (int e = threadIdx.x; e < count; e += THREADS) {
    const int source = start + tile.places[e];
    const long long to = base + tile.starts[unsigned(tile.keys[e] >> s.SHIFT) % DIGITS] + e;
    values[to] = x[base + source];
#if GIVEN_PLACES
    places[to] = from[base + source];
#else
    places[to] = source;
#endif
  }
}
#endif
