// A scatter of src [outer, LENGTH, INNER], with an id below COUNT for each element, into y [outer, COUNT, INNER] by atomic operations
// on integers, whose result does not depend on their order. KIND 0: the greatest place; 1, 2: the maximum, the minimum, of integers in
// the order of the elements; 3: sums of integers. KIND 4: sums of floats in two goes: the greatest exponent of a key; then sums of the
// elements, each in units of 2^-SHIFT of the last bit that a number with that exponent has. STEP 0: what is held at first. STEP 1, 2:
// the goes. STEP 3: the results. lost: for each line, whether an id does not exist.
// Sums in integers: Demmel and Nguyen, "Parallel reproducible summation" (2015), here with one bin, as wide as 64 bits allow.

constexpr unsigned TOP = 255;  // the exponent of infinity and nan
constexpr int MANY = 4;        // lanes of one key that are combined before

#if KIND == 4 && STEP == 1
using Part = int;
#define TARGET tops
#else
using Part = HOLD;
#define TARGET held
#endif

#if KIND == 2
__device__ __forceinline__ Part both(Part a, Part b) { return a < b ? a : b; }
__device__ __forceinline__ void apply(Part *to, Part value) { atomicMin(to, value); }
constexpr Part NOTHING = HOLD_MOST;
#elif KIND == 3 || (KIND == 4 && STEP == 2)
__device__ __forceinline__ Part both(Part a, Part b) { return (UNSIGNED)a + (UNSIGNED)b; }
__device__ __forceinline__ void apply(Part *to, Part value) { atomicAdd((UNSIGNED *)to, (UNSIGNED)value); }
constexpr Part NOTHING = 0;
#else
__device__ __forceinline__ Part both(Part a, Part b) { return a > b ? a : b; }
__device__ __forceinline__ void apply(Part *to, Part value) { atomicMax(to, value); }
constexpr Part NOTHING = -(Part)HOLD_MOST - 1;
#endif

// Applies a value of each lane at its key, if that is not below 0. The keys of two lanes are tried for others with the same one.
__device__ __forceinline__ void apply_all(Part *to, int key, Part value) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int turn = 0; turn < 2; ++turn) {
    const unsigned mine = __ballot_sync(0xFFFFFFFFu, key >= 0);
    if (!mine) return;
    const int first = __ffs(mine) - 1, shared = __shfl_sync(0xFFFFFFFFu, key, first);
    const bool has = key == shared;
    if (__popc(__ballot_sync(0xFFFFFFFFu, has)) < MANY) break;
    Part all = has ? value : NOTHING;
#pragma unroll
    for (int step = 16; step; step /= 2) all = both(all, __shfl_xor_sync(0xFFFFFFFFu, all, step));
    if (lane == first) apply(to + shared, all);
    if (has) key = -1;
  }
  if (key >= 0) apply(to + key, value);
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
__device__ __forceinline__ unsigned exponent_of(float x) {
  const unsigned exponent = __float_as_uint(x) >> 23 & TOP;
  return exponent ? exponent : 1;
}

// An element as an integer, next to others whose exponent is at most `top`. With infinite ones only those of each sign count.
__device__ __forceinline__ long long whole(float x, unsigned top, int shift) {
  const unsigned bits = __float_as_uint(x), exponent = bits >> 23 & TOP;
  if (top == TOP) return exponent < TOP ? 0 : x != x ? (1ll << 31) + 1 : bits >> 31 ? 1ll << 31 : 1;
  const unsigned long long digits = bits & 0x7FFFFFu | (exponent ? 0x800000u : 0);
  const int down = (int)(top - exponent_of(x)) - shift;
  const unsigned long long size = down <= 0 ? digits << -down : down > 24 ? 0 : (digits + (1ull << (down - 1))) >> down;
  return bits >> 31 ? -(long long)size : (long long)size;
}

__device__ __forceinline__ float sum_of(long long all, unsigned top, int shift) {
  if (top == 0) return 0;
  if (top == TOP) {
    const bool high = all & 0x7FFFFFFF, low = all >> 31;
    return __uint_as_float(high && low ? 0x7FC00000u : low ? 0xFF800000u : 0x7F800000u);
  }
  return (float)((double)all * __longlong_as_double(((long long)top - 150 - shift + 1023) << 52));
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(ARGUMENTS, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const int first = blockIdx.x * THREADS * EACH + threadIdx.x;
#if STEP == 0 || STEP == 3
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int key = first + e * THREADS;
    if (key >= s.KEYS) return;
#if STEP == 0
    if (FILLS && key < s.LINES) lost[key] = 0;
#if KIND == 4
    tops[key] = 0;
#endif
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
    else store(y + key, sum_of(found, tops[key], s.SHIFT));
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
    else if (FILLS && STEP == 1) lost[outer * s.INNER + i - row * s.INNER] = 1;
#if KIND
    if (keys[e] >= 0) values[e] = wide(src[i]);
    if (KIND == 4 && values[e] == 0) keys[e] = -1;
#endif
  }
#if KIND == 4 && STEP == 2
  unsigned highest[EACH];
#pragma unroll
  for (int e = 0; e < EACH; ++e) highest[e] = keys[e] < 0 ? 0 : tops[keys[e]];
#endif
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
#if KIND == 0
    apply_all(TARGET, keys[e], first + e * THREADS);
#elif KIND == 1 || KIND == 2
    apply_all(TARGET, keys[e], in_order(values[e]));
#elif KIND == 3
    apply_all(TARGET, keys[e], values[e]);
#elif STEP == 1
    apply_all(TARGET, keys[e], exponent_of(values[e]));
#else
    apply_all(TARGET, keys[e], keys[e] < 0 ? 0 : whole(values[e], highest[e], s.SHIFT));
#endif
  }
#endif
}
