// y[., id, .] combined with src, along the middle axis: [., COUNT, AFTER] and [., LENGTH, AFTER]. ids are sorted along it, and from
// are their places before. STEP 0: the thread of the first of equal ids goes through up to PART of them, in the order of their
// places, and so do the threads of each PART-th after it, whose results are parts. STEP 1: the thread of the first of more than PART
// equal ids goes through their parts. If an id does not exist, its line of y is FILLER, if there is one.
extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ src, const I *__restrict__ ids, const int *__restrict__ from, SUM *parts, T *y, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const long long at = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (at >= (long long)s.ALL * s.LENGTH) return;
  const long long row = at / s.AFTER;
  const int e = row % s.LENGTH;
  const long long base = at - (long long)e * s.AFTER, far = (long long)s.PART * s.AFTER;
  T *line = y + row / s.LENGTH * s.COUNT * s.AFTER + at % s.AFTER;
  const long long id = ids[at], last = ids[base + (long long)(s.LENGTH - 1) * s.AFTER];
  if (FILLS && (ids[base] < 0 || last >= s.COUNT)) {
    for (long long t = e; STEP == 0 && t < s.COUNT; t += s.LENGTH) store(line + t * s.AFTER, FILLER);
    return;
  }
  if (id < 0 || id >= s.COUNT) return;
  const bool first = !e || ids[at - s.AFTER] != id, few = s.LENGTH - e <= s.PART || ids[at + far] != id;
  T *to = line + id * s.AFTER;
  if (STEP == 1) {
    if (!first || few) return;
    SUM held = parts[at];
    for (int k = e + s.PART; k < s.LENGTH && ids[base + (long long)k * s.AFTER] == id; k += s.PART) {
      held = combined(held, parts[base + (long long)k * s.AFTER]);
    }
    store(to, held);
    return;
  }
  if (!first) {
    if (e < s.PART || ids[at - far] != id) return;
    int low = 0, high = e;  // where the equal ids begin
    while (low < high) {
      const int middle = low + (high - low) / 2;
      if (ids[base + (long long)middle * s.AFTER] == id) high = middle;
      else low = middle + 1;
    }
    if ((e - low) % s.PART) return;
  }
  SUM held = wide(src[base + (long long)from[at] * s.AFTER]);
  if (first) held = combined(wide(*to), held);
  const int end = s.LENGTH - e < s.PART ? s.LENGTH : e + s.PART;
  for (int k = e + 1; k < end; ++k) {
    const long long here = base + (long long)k * s.AFTER;
    if (ids[here] != id) break;
    held = combined(held, wide(src[base + (long long)from[here] * s.AFTER]));
  }
  if (first && few) store(to, held);
  else parts[at] = held;
}
