// y[key, .] is x[key, .], if there is one, combined with rows[places[i], .] for i from starts[key] to starts[key + 1], in that order:
// a team has CHUNK columns of EACH neighbouring keys, of which it first writes those without rows. Of a key with more than PART rows,
// each PART and the last ones have a team, which leaves what it holds in a line of parts: the key's first line is 2 / PART times its
// first i, so the lines of keys are apart. Keys of a part with an id that does not exist, whose places come last, are FILLER, if there
// is one.
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ rows, const int *__restrict__ places, const int *__restrict__ starts, ARGUMENT_WEIGHT ARGUMENT_X T *__restrict__ y, SUM *__restrict__ parts, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const long long unit = ((long long)blockIdx.x * THREADS + threadIdx.x) / TEAM;
  const int chunks = (s.INNER + TEAM * VEC - 1) / (TEAM * VEC), column = (unit % chunks * TEAM + threadIdx.x % TEAM) * VEC;
  const long long number = unit / chunks;
  const int groups = (s.KEYS + EACH - 1) / EACH;
  if (number >= groups + s.LINES || column >= s.INNER) return;
  const bool whole = number < groups;
  const int line = (int)number - groups, known = FILLS ? starts[s.KEYS] : s.ALL;
  int first = (int)number * EACH;
  if (!whole) {  // the last key that begins before the end of the line
    int low = 0, high = s.KEYS;
    while (low < high) {
      const int middle = low + (high - low) / 2;
      if (starts[middle] / (PART / 2) <= line) low = middle + 1;
      else high = middle;
    }
    first = low - 1;
  }
  auto combine = [&](int key) {
    bool lost = known < s.ALL && s.PARTS == 1;
    for (int i = known; FILLS && s.PARTS > 1 && i < s.ALL; ++i) lost |= places[i] / (s.ALL / s.PARTS) == key / (s.KEYS / s.PARTS);
    T *to = y + (long long)key * s.INNER + column;
    if (lost) {
      if (whole) fill(to, FILLER);
      return;
    }
    const int start = starts[key], all = starts[key + 1] - start, done = whole ? 0 : (line - start / (PART / 2)) * PART;
    if ((all <= PART) != whole || done >= (whole ? 1 : all)) return;
    SUM held[VEC];
#pragma unroll
    for (int i = 0; i < VEC; ++i) held[i] = NEUTRAL;
    combine_rows(held, rows + column, s.INNER, places + start + done, all - done < PART ? all - done : PART, s.TABLE, WEIGHT);
    if (whole) {
      finish(to, AT_X((long long)key * s.INNER + column), held);
    } else {
#pragma unroll
      for (int i = 0; i < VEC; ++i) parts[(long long)line * s.INNER + column + i] = held[i];
    }
  };
  if (EACH == 1) return combine(first);
  const int keys = !whole ? 1 : s.KEYS - first < EACH ? s.KEYS - first : EACH;
  unsigned left = (1u << keys) - 1;
  if (whole && known == s.ALL) {
    SUM none[VEC];
#pragma unroll
    for (int i = 0; i < VEC; ++i) none[i] = NEUTRAL;
    int at[EACH + 1];
#pragma unroll
    for (int n = 0; n <= EACH; ++n) at[n] = starts[first + (n < keys ? n : keys)];
#pragma unroll
    for (int n = 0; n < EACH; ++n) {
      if (at[n] != at[n + 1] || n >= keys) continue;
      const long long to = (long long)(first + n) * s.INNER + column;
      finish(y + to, AT_X(to), none);
      left &= ~(1u << n);
    }
  }
  for (; left; left &= left - 1) combine(first + __ffs(left) - 1);
}
