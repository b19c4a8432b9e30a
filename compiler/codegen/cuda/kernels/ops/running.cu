// Running sums, products or recurrences along the middle axis of [., COUNT, INNER]: element i is what the elements 0 to i combine to,
// from the other end if REVERSE. A block has WIDE columns and, along the axis, a chunk of STEPS tiles. STEP 0 leaves what all of a
// chunk combine to in totals [., CHUNKS, INNER]; STEP 1 begins with the chunks before. Of a tile, a thread combines EACH neighbours,
// and then the threads before it. So the order depends on the sizes alone. If WHOLE, INNER is 1 and COUNT a multiple of EACH: a thread
// reads and writes its neighbours as they are in memory. Else threads exchange elements, so that a warp reads and writes neighbours.

__device__ __forceinline__ int spread(int i) { return i + i / 32; }  // EACH neighbours of all threads are in different banks

// The first of the EACH neighbours in memory that the elements from i on are.
#define NEIGHBOURS(i) (REVERSE ? s.COUNT - EACH - (i) : (i))
#define TURN(k) (REVERSE ? EACH - 1 - (k) : (k))

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(GIVEN_TENSORS, ARGUMENTS, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  constexpr int WARPS = THREADS / 32, ROWS = THREADS / WIDE, TILE = ROWS * EACH;
  const int column = threadIdx.x % WIDE, row = threadIdx.x / WIDE, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int strips = (s.INNER + WIDE - 1) / WIDE, strip = blockIdx.x % strips, chunk = blockIdx.x / strips % s.BLOCKS;
  const long long line = blockIdx.x / strips / s.BLOCKS;
  const int at = strip * WIDE + column;
  const bool known = at < s.INNER;
  const int first = chunk * s.STEPS * TILE, stop = s.COUNT - first < s.STEPS * TILE ? s.COUNT : first + s.STEPS * TILE;
  const long long begins = line * s.COUNT * s.INNER + at;
  __shared__ Held tile[WHOLE ? THREADS : TILE * WIDE + TILE * WIDE / 32];
  __shared__ Held warps[WARPS * WIDE];
  Held carry = NEUTRAL;
#if STEP == 1
  if (s.CHUNKS > 1) {  // a thread combines neighbours, then neighbouring threads do
    const int share = (chunk + ROWS - 1) / ROWS, end = (row + 1) * share < chunk ? (row + 1) * share : chunk;
    for (int c = row * share; known && c < end; ++c) carry = combined(carry, totals[(line * s.CHUNKS + c) * s.INNER + at]);
    tile[threadIdx.x] = carry;
    for (int step = 1; step < ROWS; step *= 2) {
      __syncthreads();
      if (row % (2 * step) == 0) tile[threadIdx.x] = combined(tile[threadIdx.x], tile[threadIdx.x + step * WIDE]);
    }
    __syncthreads();
    carry = tile[column];
    __syncthreads();
  }
#endif
  for (int begin = first; begin < stop; begin += TILE) {
    Held found[EACH];
#if WHOLE
    const int own = begin + row * EACH;  // is in range with all of its neighbours, or none is
    if (own < stop) {
      const Lanes<X, EACH> together = Lanes<X, EACH>::read(x + begins + NEIGHBOURS(own));
#pragma unroll
      for (int k = 0; k < EACH; ++k) {
        const X x[1] = {together.x[TURN(k)]};
        found[k] = READ(0, own + k == 0);
      }
    } else {
#pragma unroll
      for (int k = 0; k < EACH; ++k) found[k] = NEUTRAL;
    }
#pragma unroll
    for (int k = 1; k < EACH; ++k) found[k] = combined(found[k - 1], found[k]);
#else
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
      const int i = begin + k * ROWS + row;
      found[k] = known && i < stop ? READ(begins + (long long)(REVERSE ? s.COUNT - 1 - i : i) * s.INNER, i == 0) : NEUTRAL;
    }
#pragma unroll
    for (int k = 0; k < EACH; ++k) tile[spread(k * THREADS + threadIdx.x)] = found[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
      const Held own = tile[spread((row * EACH + k) * WIDE + column)];
      found[k] = k ? combined(found[k - 1], own) : own;
    }
#endif
    Held all = found[EACH - 1];
#pragma unroll
    for (int step = WIDE; step < 32; step *= 2) {
      const Held before = up(all, step);
      if (lane >= step) all = combined(before, all);
    }
    if (lane >= 32 - WIDE) warps[warp * WIDE + column] = all;
    Held mine = NEUTRAL;
    if (WIDE < 32) {
      const Held before = up(all, WIDE);
      if (lane >= WIDE) mine = before;
    }
    __syncthreads();
    Held others = carry;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      if (w == warp) others = carry;
      carry = combined(carry, warps[w * WIDE + column]);
    }
    mine = combined(others, mine);
#if STEP == 1 && WHOLE
    if (own < stop) {
      Lanes<T, EACH> together;
#pragma unroll
      for (int k = 0; k < EACH; ++k)
        store(&together.x[TURN(k)], LATE ? (k ? combined(mine, found[k - 1]) : mine) : combined(mine, found[k]));
      together.write(result + begins + NEIGHBOURS(own));
    }
#elif STEP == 1
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
      const Held here = combined(mine, found[k]);
      tile[spread((row * EACH + k) * WIDE + column)] = LATE ? (k ? combined(mine, found[k - 1]) : mine) : here;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
      const int i = begin + k * ROWS + row;
      const long long to = begins + (long long)(REVERSE ? s.COUNT - 1 - i : i) * s.INNER;
      if (known && i < stop) store(result + to, RESULT(tile[spread(k * THREADS + threadIdx.x)], to));
    }
#endif
    __syncthreads();
  }
#if STEP == 0
  if (row == 0 && known) totals[(line * s.CHUNKS + chunk) * s.INNER + at] = carry;
#endif
}
