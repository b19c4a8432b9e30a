// The elements of y [outer, COUNT, INNER], which is x or neutral, that src [outer, LENGTH, INNER] is combined with, at an id for each of
// its elements: a thread for each of these, of lines with few. The first one of an id combines all with it, in their order. If an id
// of a line does not exist, the line is FILLER, if there is one.
extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(ARGUMENT_X const T *__restrict__ src, const I *__restrict__ ids, T *__restrict__ y, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= s.ALL) return;
  const int row = quotient(i, s.INNER_magic, s.INNER_shift), outer = quotient(row, s.LENGTH_magic, s.LENGTH_shift);
  const int inner = i - row * s.INNER, mine = row - outer * s.LENGTH, line = outer * s.LENGTH * s.INNER + inner;
  const long long id = ids[i];
  bool first = id >= 0 && id < s.COUNT, lost = !first;
  for (int j = 0; j < s.LENGTH; ++j) {
    const long long other = ids[line + j * s.INNER];
    lost |= other < 0 || other >= s.COUNT;
    if (j < mine && other == id) first = false;
  }
  const long long begins = (long long)outer * s.COUNT * s.INNER + inner;
  if (FILLS && lost) {
    for (int k = mine; k < s.COUNT; k += s.LENGTH) FILL(y + begins + (long long)k * s.INNER);
  } else if (first) {
    T *to = y + begins + id * s.INNER;
    SUM all = FIRST(begins + id * s.INNER);
    for (int j = mine; j < s.LENGTH; ++j) {
      if (ids[line + j * s.INNER] == id) all = combined(all, wide(src[line + j * s.INNER]));
    }
    store(to, all);
  }
}
