// Sums of floats as integers, which have no order: Demmel and Nguyen, "Parallel reproducible summation" (2015), here with one bin, as
// wide as 64 bits allow.

constexpr unsigned TOP = 255;  // the exponent of infinity and nan

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

// The greatest numbers of a block's threads.
__device__ __forceinline__ int2 greatest(int2 mine) {
  __shared__ int2 found[THREADS / 32];
#pragma unroll
  for (int step = 16; step; step /= 2) {
    mine.x = max(mine.x, __shfl_xor_sync(0xFFFFFFFFu, mine.x, step));
    mine.y = max(mine.y, __shfl_xor_sync(0xFFFFFFFFu, mine.y, step));
  }
  if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = mine;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < THREADS / 32; ++w) {
    mine.x = max(mine.x, found[w].x);
    mine.y = max(mine.y, found[w].y);
  }
  return mine;
}

// The span of exponents grows to that of x: the greatest, and TOP less the least.
__device__ __forceinline__ void widen(int2 &span, float x) {
  if (x == 0) return;
  const int exponent = exponent_of(x);
  span.x = max(span.x, exponent);
  span.y = max(span.y, (int)TOP - exponent);
}

// The greatest exponent of a span in which none is rounded, else -1.
__device__ __forceinline__ int common_of(int2 span, int shift) {
  return span.x < (int)TOP && span.x + span.y - (int)TOP <= shift + ZEROS ? span.x : -1;
}
