// Sorting by digits of 8 bits, the lowest first (LSD radix sort): a pass keeps the order of elements with equal digits.
// A block of 256 threads arranges a tile; lane l of warp w has the elements 32 * (ITEMS * w + j) + l.
constexpr int THREADS = 256, WARPS = THREADS / 32, DIGITS = 256, TILE = THREADS * ITEMS, BITS = 8 * sizeof(T);

// An unsigned number in the order of the elements: nan is the greatest, zeros of either sign are equal.
__device__ __forceinline__ KEY ordered(T x) {
  KEY bits = 0;
  memcpy(&bits, &x, sizeof(T));
  constexpr KEY sign = KEY(1) << (BITS - 1), all = KEY(~KEY(0)) >> (8 * sizeof(KEY) - BITS);
  if (IS_FLOAT) {
    if ((bits & ~sign & all) > INFINITY_BITS) {
      bits = all;
    } else if ((bits & ~sign & all) == 0) {
      bits = sign;
    } else {
      bits = bits & sign ? ~bits & all : bits | sign;
    }
  } else if (IS_SIGNED) {
    bits ^= sign;
  }
  return LARGEST ? ~bits & all : bits;
}

// Exclusive sums over the threads of a block.
__device__ __forceinline__ int before_me(int mine, int *warps) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = mine;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xFFFFFFFFu, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  int all = sum - mine;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) all += w < warp ? warps[w] : 0;
  return all;
}

struct Tile {
  int counts[WARPS][DIGITS];  // of each warp; then where its first element of that digit goes
  int starts[DIGITS];         // where the first element of a digit goes
  int warps[WARPS];
  KEY keys[TILE];
  unsigned short places[TILE];
};

// Puts keys and places into the tile in the order of the digit that begins at bit `shift`.
__device__ __forceinline__ void arrange(Tile &tile, const KEY (&keys)[ITEMS], const unsigned short (&places)[ITEMS], int shift) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int *mine = tile.counts[warp];
#pragma unroll
  for (int d = lane; d < DIGITS; d += 32) mine[d] = 0;
  __syncwarp();
  unsigned short ranks[ITEMS];
#pragma unroll
  for (int j = 0; j < ITEMS; ++j) {
    const unsigned digit = unsigned(keys[j] >> shift) % DIGITS;
    unsigned equal = 0xFFFFFFFFu;  // the lanes with the same digit
#pragma unroll
    for (int bit = 0; bit < 8; ++bit) {
      const bool set = digit >> bit & 1;
      const unsigned with = __ballot_sync(0xFFFFFFFFu, set);
      equal &= set ? with : ~with;
    }
    const int earlier = __popc(equal & ((1u << lane) - 1));
    const int known = mine[digit];
    __syncwarp();
    if (earlier == 0) mine[digit] = known + __popc(equal);
    __syncwarp();
    ranks[j] = known + earlier;
  }
  __syncthreads();
  int sum = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) sum += tile.counts[w][threadIdx.x];
  int start = before_me(sum, tile.warps);
  tile.starts[threadIdx.x] = start;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
    const int count = tile.counts[w][threadIdx.x];
    tile.counts[w][threadIdx.x] = start;
    start += count;
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < ITEMS; ++j) {
    const int to = mine[unsigned(keys[j] >> shift) % DIGITS] + ranks[j];
    tile.keys[to] = keys[j];
    tile.places[to] = places[j];
  }
  __syncthreads();
}
