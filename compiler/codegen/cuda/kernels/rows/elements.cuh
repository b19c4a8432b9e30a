#include "digits.cuh"

// Combines a warp's values with those held at their keys: those of one key in the order of lanes, by pairs. A key below 0 has no
// value. LAST: values are places, of which the greatest is the last one, whatever the order.
__device__ __forceinline__ void take(HOLD *held, int key, HOLD value) {
  const bool mine = key >= 0;
#if LAST
  if (mine) atomicMax(held + key, value);
#else
  const int lane = threadIdx.x % 32;
  unsigned same = __ballot_sync(0xFFFFFFFFu, mine);
  if (!same) return;
  same = with_same<BITS>(same, key);
  if (!mine) same = 0;
  const unsigned later = lane < 31 ? same >> (lane + 1) << (lane + 1) : 0;
  int next = later ? __ffs(later) - 1 : lane;
  while (__ballot_sync(0xFFFFFFFFu, next != lane)) {
    const HOLD other = __shfl_sync(0xFFFFFFFFu, value, next);
    const int after = __shfl_sync(0xFFFFFFFFu, next, next);
    if (next != lane) {
      value = combined(value, other);
      next = after == next ? lane : after;
    }
  }
  if (mine && !(same & ((1u << lane) - 1))) held[key] = combined(held[key], value);
#endif
  __syncwarp();
}

// An element of the result: what is held for it, after all of its elements. `at`: of the result, of which x has the same.
__device__ __forceinline__ void put(T *y, const T *x, const T *src, HOLD held) {
#if PLACES
  *y = held;
#elif LAST
  *y = held >= 0 ? src[held] : HAS_X ? *x : T{};
#else
  store(y, held);
#endif
}
