// Merges sorted runs of RUN elements in pairs, along the middle axis of [., COUNT, AFTER]: a thread moves one element, whose
// place is its own in its run and the number of elements of the other run that come before it, found by halving.
#include "order.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ x, const int *__restrict__ from, T *__restrict__ values, int *__restrict__ places, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const long long at = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (at >= (long long)s.ALL * s.COUNT) return;
  const long long row = at / s.AFTER;
  const int e = row % s.COUNT, start = e / s.RUN * s.RUN;
  const long long base = at - (long long)e * s.AFTER;
  const int other = e / s.RUN % 2 ? start - s.RUN : s.COUNT - start > s.RUN ? start + s.RUN : s.COUNT;
  const T value = x[at];
  const KEY mine = key(value);
  const int place = from[at];
  int low = 0, high = s.COUNT - other < s.RUN ? s.COUNT - other : s.RUN;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    const long long there = base + (long long)(other + middle) * s.AFTER;
    if (ahead(key(x[there]), from[there], mine, place)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const long long to = base + (long long)((start < other ? start : other) + (e - start) + low) * s.AFTER;
  values[to] = value;
  places[to] = place;
}
