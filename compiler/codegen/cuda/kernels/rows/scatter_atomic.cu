// A scatter of src [outer, LENGTH, INNER], with an id below COUNT for each element, into y [outer, COUNT, INNER] by atomic operations
// on integers, whose result does not depend on their order. The names of KIND and STEP are in scatter_atomic.py.
//
// KIND 0: the greatest place. 1, 2: the maximum, the minimum, of integers in the order of the elements. 3: sums of integers. 4: sums of
// floats as integers, in units of 2^-SHIFT of the last bit of the greatest number of a sum. If all elements are whole in the units of
// the greatest element of all, one pass adds them. Otherwise one pass finds the greatest exponent of each key, and a second one adds.
// Both ways give the same bits, since elements of such a range are whole in the units of their key, too.
//
// STEP 0: what is held at first, and spans [SPANS, 2]: the greatest exponent of a part of the elements, and TOP less the least. STEP 1
// and 2: the passes. STEP 4, between them: moves the exponents, which are held first, to tops. STEP 3: the results. The word after the
// spans is the greatest exponent of all if there is one pass, else -1. lost: for each line, whether an id does not exist.

#if KIND == 4
#include "whole_sums.cuh"
#endif

constexpr int MANY = 4;  // fewest lanes with one key that are combined before the atomic operation

struct Least {
  using Part = HOLD;
  static __device__ __forceinline__ Part both(Part a, Part b) { return a < b ? a : b; }
  static __device__ __forceinline__ void apply(Part *to, Part value) { atomicMin(to, value); }
  static constexpr Part NOTHING = HOLD_MOST;
};
struct Sum {
  using Part = HOLD;
  static __device__ __forceinline__ Part both(Part a, Part b) { return (UNSIGNED)a + (UNSIGNED)b; }
  static __device__ __forceinline__ void apply(Part *to, Part value) { atomicAdd((UNSIGNED *)to, (UNSIGNED)value); }
  static constexpr Part NOTHING = 0;
};
template <typename PART> struct Greatest {
  using Part = PART;
  static __device__ __forceinline__ Part both(Part a, Part b) { return a > b ? a : b; }
  static __device__ __forceinline__ void apply(Part *to, Part value) { atomicMax(to, value); }
  static constexpr Part NOTHING = -(Part)HOLD_MOST - 1;
};

// Applies a value of each lane at its key, if that is not below 0. The keys of two lanes are tried for others with the same one.
template <typename RULE> __device__ __forceinline__ void apply_all(typename RULE::Part *to, int key, typename RULE::Part value) {
  using Part = typename RULE::Part;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int turn = 0; turn < 2; ++turn) {
    const unsigned mine = __ballot_sync(0xFFFFFFFFu, key >= 0);
    if (!mine) return;
    const int first = __ffs(mine) - 1, shared = __shfl_sync(0xFFFFFFFFu, key, first);
    const bool has = key == shared;
    if (__popc(__ballot_sync(0xFFFFFFFFu, has)) < MANY) break;
    Part all = has ? value : RULE::NOTHING;
#pragma unroll
    for (int step = 16; step; step /= 2) all = RULE::both(all, __shfl_xor_sync(0xFFFFFFFFu, all, step));
    if (lane == first) RULE::apply(to + shared, all);
    if (has) key = -1;
  }
  if (key >= 0) RULE::apply(to + key, value);
}

#if KIND == 1 || KIND == 2
// An integer in the order of the elements; nan is the greatest, for a minimum the least.
__device__ __forceinline__ HOLD in_order(SUM x) {
#if IS_FLOAT
  if (x != x) return KIND == 1 ? HOLD_MOST : -HOLD_MOST - 1;
  HOLD bits;
  memcpy(&bits, &x, sizeof(HOLD));
  return bits ^ (bits >> (8 * sizeof(HOLD) - 1) & HOLD_MOST);
#else
  return x;
#endif
}

__device__ __forceinline__ SUM element_of(HOLD held) {
#if IS_FLOAT
  const HOLD bits = held ^ (held >> (8 * sizeof(HOLD) - 1) & HOLD_MOST);
  SUM x;
  memcpy(&x, &bits, sizeof(HOLD));
  return x;
#else
  return held;
#endif
}
#elif KIND == 4
#if STEP == 0
// The span of the part of src that the block has: it goes through all elements with SPANS - 1 others.
__device__ __forceinline__ int2 span_of(const T *__restrict__ src, const Numbers &s) {
  constexpr int AHEAD = 8;  // loads under way
  int2 found = {0, 0};
  const long long turn = (long long)s.SPANS * THREADS;
  for (long long i = blockIdx.x * THREADS + threadIdx.x; i < s.ALL; i += AHEAD * turn) {
    float x[AHEAD];
#pragma unroll
    for (int e = 0; e < AHEAD; ++e) x[e] = i + e * turn < s.ALL ? wide(src[i + e * turn]) : 0;
#pragma unroll
    for (int e = 0; e < AHEAD; ++e) widen(found, x[e]);
  }
  return greatest(found);
}
#elif STEP == 1
// The greatest exponent of all elements if they are added in one go, else -1.
__device__ __forceinline__ int common_top(const int *__restrict__ spans, const Numbers &s) {
  int2 found = {0, 0};
  for (int i = threadIdx.x; i < s.SPANS; i += THREADS) {
    found.x = max(found.x, spans[2 * i]);
    found.y = max(found.y, spans[2 * i + 1]);
  }
  return common_of(greatest(found), s.SHIFT);
}
#endif
#endif

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(ARGUMENTS, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const int first = blockIdx.x * THREADS * EACH + threadIdx.x;
#if KIND == 4 && STEP == 0
  if (blockIdx.x < s.SPANS) {
    const int2 span = span_of(src, s);
    if (threadIdx.x == 0) {
      spans[2 * blockIdx.x] = span.x;
      spans[2 * blockIdx.x + 1] = span.y;
    }
  }
#elif KIND == 4 && STEP != 1
  const int common = spans[2 * s.SPANS];
  if (STEP != 3 && common >= 0) return;
#endif
#if STEP == 4
  for (long long key = blockIdx.x * THREADS + threadIdx.x; key < s.KEYS; key += gridDim.x * THREADS) {
    tops[key] = held[key];
    held[key] = 0;
  }
#elif STEP == 0 || STEP == 3
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int key = first + e * THREADS;
    if (key >= s.KEYS) return;
#if STEP == 0
    if (FILLS && key < s.LINES) lost[key] = 0;
    held[key] = FIRST_HELD(key);
#else
    bool filled = false;
    if (FILLS) {
      const int outer = quotient(key, s.RESULTS_magic, s.RESULTS_shift), row = quotient(key, s.INNER_magic, s.INNER_shift);
      filled = lost[outer * s.INNER + key - row * s.INNER];
    }
    const HOLD found = held[key];
#if PLACES
    const int row = found < 0 ? 0 : quotient(found, s.INNER_magic, s.INNER_shift);
    y[key] = filled ? s.LOST : found < 0 ? found : row - quotient(row, s.LENGTH_magic, s.LENGTH_shift) * s.LENGTH;
#else
    if (filled) FILL(y + key);
#if KIND == 0
    else y[key] = found >= 0 ? src[found] : OLD(key);
#elif KIND == 4
    else store(y + key, sum_of(found, common >= 0 ? common : tops[key], s.SHIFT));
#elif KIND == 3
    else store(y + key, found);
#else
    else store(y + key, element_of(found));
#endif
#endif
#endif
  }
#else
  int keys[EACH];
  SUM values[EACH];
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int i = first + e * THREADS;
    keys[e] = -1;
    values[e] = 0;
    if (i >= s.ALL) continue;
    const long long id = ids[i];
    const int row = quotient(i, s.INNER_magic, s.INNER_shift), outer = quotient(row, s.LENGTH_magic, s.LENGTH_shift);
    if (id >= 0 && id < s.COUNT) keys[e] = (outer * s.COUNT + (int)id) * s.INNER + i - row * s.INNER;
#if STEP == 1
    else if (FILLS) lost[outer * s.INNER + i - row * s.INNER] = 1;
#endif
#if KIND
    if (keys[e] >= 0) values[e] = wide(src[i]);
    if (KIND == 4 && values[e] == 0) keys[e] = -1;
#endif
  }
#if KIND == 4 && STEP == 1
  const int common = common_top(spans, s);  // while the loads of the elements are in flight
  if (first == 0) spans[2 * s.SPANS] = common;
#elif KIND == 4
  unsigned highest[EACH];
#pragma unroll
  for (int e = 0; e < EACH; ++e) highest[e] = keys[e] < 0 ? 0 : tops[keys[e]];
#endif
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
#if KIND == 0
    apply_all<Greatest<HOLD>>(held, keys[e], first + e * THREADS);
#elif KIND == 1
    apply_all<Greatest<HOLD>>(held, keys[e], in_order(values[e]));
#elif KIND == 2
    apply_all<Least>(held, keys[e], in_order(values[e]));
#elif KIND == 3
    apply_all<Sum>(held, keys[e], values[e]);
#elif STEP == 1
    if (common >= 0) apply_all<Sum>(held, keys[e], keys[e] < 0 ? 0 : whole(values[e], common, s.SHIFT));
    else apply_all<Greatest<HOLD>>(held, keys[e], exponent_of(values[e]));
#else
    apply_all<Sum>(held, keys[e], keys[e] < 0 ? 0 : whole(values[e], highest[e], s.SHIFT));
#endif
  }
#endif
}
