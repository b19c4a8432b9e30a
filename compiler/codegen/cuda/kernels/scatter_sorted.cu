// y[., id, .] combined with src, along the middle axis: [., COUNT, AFTER] and [., LENGTH, AFTER]. ids are sorted along it, and from
// are their places before. The thread of the first of equal ids goes through all of them, in the order of their places. If an id does
// not exist, its line of y is FILLER, if there is one.
extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ src, const I *__restrict__ ids, const int *__restrict__ from, T *y, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const long long at = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (at >= (long long)s.ALL * s.LENGTH) return;
  const long long row = at / s.AFTER;
  const int e = row % s.LENGTH;
  const long long base = at - (long long)e * s.AFTER;
  T *line = y + row / s.LENGTH * s.COUNT * s.AFTER + at % s.AFTER;
  const long long id = ids[at], last = ids[base + (long long)(s.LENGTH - 1) * s.AFTER];
  if (FILLS && (ids[base] < 0 || last >= s.COUNT)) {
    for (long long t = e; t < s.COUNT; t += s.LENGTH) store(line + t * s.AFTER, FILLER);
    return;
  }
  if (id < 0 || id >= s.COUNT || (e && ids[at - s.AFTER] == id)) return;
  T *to = line + id * s.AFTER;
  SUM held = wide(*to);
  for (int k = e; k < s.LENGTH; ++k) {
    const long long here = base + (long long)k * s.AFTER;
    if (ids[here] != id) break;
    held = combined(held, wide(src[base + (long long)from[here] * s.AFTER]));
  }
  store(to, held);
}
