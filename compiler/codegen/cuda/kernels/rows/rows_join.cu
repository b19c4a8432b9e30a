// The lines of parts of each key with more than PART rows, combined: the block of the key's first line. Each of its teams has an equal
// run of lines, and then their results are combined in order.
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const int *__restrict__ places, const int *__restrict__ starts, const SUM *__restrict__ parts, ARGUMENT_X T *__restrict__ y, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  constexpr int TEAMS = THREADS / TEAM;
  __shared__ SUM joined[THREADS * VEC];
  const int line = blockIdx.x, known = FILLS ? starts[s.KEYS] : s.ALL;
  int low = 0, high = s.KEYS;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (starts[middle] / (PART / 2) <= line) low = middle + 1;
    else high = middle;
  }
  const int key = low - 1, start = starts[key], all = starts[key + 1] - start;
  if (all <= PART || start / (PART / 2) != line) return;
  for (int i = known; FILLS && i < s.ALL; ++i) {
    if (s.PARTS == 1 || places[i] / (s.ALL / s.PARTS) == key / (s.KEYS / s.PARTS)) return;
  }
  const int count = (all + PART - 1) / PART, share = (count + TEAMS - 1) / TEAMS, team = threadIdx.x / TEAM, member = threadIdx.x % TEAM;
  const int begin = team * share < count ? team * share : count, end = begin + share < count ? begin + share : count;
  for (int first = 0; first < s.INNER; first += TEAM * VEC) {
    const int column = first + member * VEC;
    SUM held[VEC];
#pragma unroll
    for (int i = 0; i < VEC; ++i) held[i] = NEUTRAL;
    if (column < s.INNER) {
#pragma unroll 4
      for (int k = begin; k < end; ++k) {
#pragma unroll
        for (int i = 0; i < VEC; ++i) held[i] = combined(held[i], parts[(long long)(line + k) * s.INNER + column + i]);
      }
    }
#pragma unroll
    for (int i = 0; i < VEC; ++i) joined[i * THREADS + threadIdx.x] = held[i];
    __syncthreads();
    if (!team && column < s.INNER) {
      for (int t = 1; t < TEAMS; ++t) {
#pragma unroll
        for (int i = 0; i < VEC; ++i) held[i] = combined(held[i], joined[i * THREADS + t * TEAM + member]);
      }
      const long long at = (long long)key * s.INNER + column;
      finish(y + at, AT_X(at), held);
    }
    __syncthreads();
  }
}
