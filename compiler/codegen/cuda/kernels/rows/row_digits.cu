// A pass of a stable sort of places by their keys, digit by digit: the keys' BITS bits from SHIFT on. A block has TILE keys, a warp a
// run of them. STEP 0: counts[digit, block] of the block's keys. STEP 1: a block for each digit; counts[digit, block] becomes the
// number of such keys in the blocks before, and totals[digit] that of all. STEP 2: keys and places go where their digits say, those
// of one digit in their order. FIRST: the key of place j is its id, ABSENT if that does not exist, and that of a later part of
// LENGTH ids is greater; else keys and places are what the pass before left.
#include "digits.cuh"

struct Keys {
  const I *ids;
  const unsigned *keys;
  __device__ __forceinline__ unsigned at(const Numbers &s, int j) const {
    if (!FIRST) return keys[j];
    const long long id = ids[j];
    if (id < 0 || id >= s.COUNT) return (unsigned)s.ABSENT;
    return (s.PARTS > 1 ? j / s.LENGTH * s.COUNT : 0) + (unsigned)id;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(ARGUMENTS, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  constexpr int WARPS = THREADS / 32, MASK = (1 << BITS) - 1, RUN = TILE / WARPS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, blocks = (s.ALL + TILE - 1) / TILE;
#if STEP == 0
  __shared__ int found[DIGITS];
  const Keys given = GIVEN_KEYS;
  for (int d = threadIdx.x; d < DIGITS; d += THREADS) found[d] = 0;
  __syncthreads();
  const int first = blockIdx.x * TILE + threadIdx.x;
#pragma unroll 4
  for (int i = 0; i < TILE; i += THREADS) {
    const int j = first + i;
    const bool there = j < s.ALL;
    const int digit = there ? given.at(s, j) >> s.SHIFT & MASK : -1;
    const int other = __shfl_sync(0xFFFFFFFFu, digit, 0);
    const unsigned same = __ballot_sync(0xFFFFFFFFu, there && digit == other);
    if (there && (lane == 0 || !(same >> lane & 1))) atomicAdd(found + digit, lane == 0 ? __popc(same) : 1);
  }
  __syncthreads();
  for (int d = threadIdx.x; d < DIGITS; d += THREADS) counts[d * blocks + blockIdx.x] = found[d];
#elif STEP == 1
  __shared__ int warps[WARPS];
  int before = 0;
  for (int first = 0; first < blocks; first += THREADS) {
    const int b = first + threadIdx.x, own = b < blocks ? counts[blockIdx.x * blocks + b] : 0;
    int sum = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFu, sum, step);
      if (lane >= step) sum += other;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    int at = before + sum - own;
    for (int w = 0; w < WARPS; ++w) {
      at += w < warp ? warps[w] : 0;
      before += warps[w];
    }
    if (b < blocks) counts[blockIdx.x * blocks + b] = at;
    __syncthreads();
  }
  if (threadIdx.x == 0) totals[blockIdx.x] = before;
#else
  __shared__ int next[WARPS * DIGITS];  // of each warp and digit: how many; then where the next one goes
  __shared__ int sums[DIGITS];  // how many have a digit below
  __shared__ int warps[WARPS];
  const Keys given = GIVEN_KEYS;
  for (int i = threadIdx.x; i < WARPS * DIGITS; i += THREADS) next[i] = 0;
  constexpr int PER = (DIGITS + THREADS - 1) / THREADS;
  const int first = threadIdx.x * PER, end = first + PER < DIGITS ? first + PER : DIGITS;
  int own = 0, all;
  for (int d = first; d < end; ++d) own += totals[d];
  int earlier = sum_before(own, warps, all);
  for (int d = first; d < end; ++d) {
    sums[d] = earlier;
    earlier += totals[d];
  }
  __syncthreads();
  const int from = blockIdx.x * TILE + warp * RUN;
#pragma unroll 4
  for (int i = 0; i < RUN; i += 32) {
    const int j = from + i + lane;
    if (j < s.ALL) atomicAdd(next + warp * DIGITS + (given.at(s, j) >> s.SHIFT & MASK), 1);
  }
  __syncthreads();
  for (int d = threadIdx.x; d < DIGITS; d += THREADS) {
    int at = sums[d] + counts[d * blocks + blockIdx.x];
    for (int w = 0; w < WARPS; ++w) {
      const int count = next[w * DIGITS + d];
      next[w * DIGITS + d] = at;
      at += count;
    }
  }
  __syncthreads();
  for (int i = 0; i < RUN; i += 32) {
    const int j = from + i + lane;
    const bool there = j < s.ALL;
    const unsigned key = there ? given.at(s, j) : 0;
    const int digit = key >> s.SHIFT & MASK;
    const unsigned same = with_same<BITS>(__ballot_sync(0xFFFFFFFFu, there), digit);
    const int before = __popc(same & ((1u << lane) - 1));
    if (there) {
      const int to = next[warp * DIGITS + digit] + before;
      sorted[to] = key;
      order[to] = FIRST ? j : GIVEN_PLACES[j];
    }
    __syncwarp();
    if (there && !before) next[warp * DIGITS + digit] += __popc(same);
    __syncwarp();
  }
#endif
}
