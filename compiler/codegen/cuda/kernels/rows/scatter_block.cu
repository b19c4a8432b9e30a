// y[line, id] is the sum of the src[line, j] with ids[line, j] = id: a block has HELD neighbouring elements of a line in shared memory
// and goes through all ids of the line. Sums are of integers, as scatter_atomic.cu has them: in one go, or in two. If an id does not
// exist, its line is FILLER.
#include "whole_sums.cuh"

constexpr int STRIDE = THREADS * VEC;

// Calls what(key, x) with the elements of keys from `low` on that are not 0; gives whether an id of the line does not exist.
template <typename WHAT>
__device__ __forceinline__ bool each(const T *__restrict__ src, const I *__restrict__ ids, const Numbers &s, int low, int here, WHAT what) {
  bool lost = false;
  for (int first = threadIdx.x * VEC; first < s.LENGTH; first += AHEAD * STRIDE) {
    Lanes<I, VEC> at[AHEAD];
    Lanes<T, VEC> given[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
      if (first + a * STRIDE >= s.LENGTH) continue;
      at[a] = Lanes<I, VEC>::read(ids + first + a * STRIDE);
      given[a] = Lanes<T, VEC>::read(src + first + a * STRIDE);
    }
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
      if (first + a * STRIDE >= s.LENGTH) continue;
#pragma unroll
      for (int v = 0; v < VEC; ++v) {
        const long long id = at[a].x[v];
        lost |= id < 0 || id >= s.COUNT;
        const float x = wide(given[a].x[v]);
        if (id >= low && id < low + here && x != 0) what((int)id - low, x);
      }
    }
  }
  return lost;
}

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ src, const I *__restrict__ ids, T *__restrict__ y, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  extern __shared__ __align__(16) unsigned memory[];
  unsigned *const lower = memory, *const upper = memory + HELD;  // of each sum's 64 bits
  unsigned char *const tops = reinterpret_cast<unsigned char *>(memory + 2 * HELD);
  const int splits = (s.COUNT + HELD - 1) / HELD, line = blockIdx.x / splits, low = blockIdx.x % splits * HELD;
  const int here = s.COUNT - low < HELD ? s.COUNT - low : HELD;
  src += (long long)line * s.LENGTH;
  ids += (long long)line * s.LENGTH;
  y += (long long)line * s.COUNT + low;
  for (int k = threadIdx.x; k < here; k += THREADS) lower[k] = upper[k] = 0;
  int2 span = {0, 0};
  for (int first = threadIdx.x * VEC; first < s.LENGTH; first += STRIDE) {
    const Lanes<T, VEC> given = Lanes<T, VEC>::read(src + first);
#pragma unroll
    for (int v = 0; v < VEC; ++v) widen(span, wide(given.x[v]));
  }
  const int common = common_of(greatest(span), s.SHIFT);
  if (common < 0) {
    each(src, ids, s, low, here, [&](int key, float x) { atomicMax(upper + key, exponent_of(x)); });
    __syncthreads();
    for (int k = threadIdx.x; k < here; k += THREADS) {
      tops[k] = upper[k];
      upper[k] = 0;
    }
    __syncthreads();
  }
  const bool lost = each(src, ids, s, low, here, [&](int key, float x) {
    const unsigned long long value = whole(x, common < 0 ? tops[key] : common, s.SHIFT);
    const unsigned part = value, before = atomicAdd(lower + key, part);
    const unsigned more = (unsigned)(value >> 32) + (before + part < part);
    if (more) atomicAdd(upper + key, more);
  });
  __syncthreads();
  const bool filled = greatest({lost, 0}).x;
  for (int k = threadIdx.x; k < here; k += THREADS) {
    const long long all = (long long)((unsigned long long)upper[k] << 32 | lower[k]);
    if (filled) store(y + k, __uint_as_float(0x7FC00000u));
    else store(y + k, sum_of(all, common < 0 ? tops[k] : common, s.SHIFT));
  }
}
