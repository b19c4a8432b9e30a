__device__ __forceinline__ void written(const X *x, const S *__restrict__ src, const ID *__restrict__ ids, X *y) {
  constexpr int PER_ROW = WIDTH / VEC;
  bool lost = false;
  if (FLOATS)
    for (int r = 0; r < PUT; ++r) lost |= ids[r] < 0 || ids[r] >= ROWS;
  const bool in_place = x == y && !lost;
  const long long work = (long long)(in_place ? PUT : ROWS) * PER_ROW;
  for (long long e = blockIdx.x * (long long)THREADS + threadIdx.x; e < work; e += gridDim.x * (long long)THREADS) {
    const int line = (int)(e / PER_ROW), first = (int)(e % PER_ROW) * VEC;
    const long long to = in_place ? (long long)ids[line] : line;
    if (in_place && (to < 0 || to >= ROWS)) continue;
    int from = -1; // the row of src that is put here
    for (int r = in_place ? line : 0; r < PUT; ++r)
      if (ids[r] == to) from = r;
    if (in_place && from != line) continue;
    Lanes<X, VEC> found;
    if (lost) {
#pragma unroll
      for (int i = 0; i < VEC; ++i) missing(found.x + i);
    } else if (from < 0) {
      found = Lanes<X, VEC>::read(x + to * WIDTH + first);
    } else {
      constexpr int sizes[RANK] = {SIZES};
      constexpr long long steps[RANK] = {STEPS};
      long long at = from * (long long)ROW_STEP;
      int left = first;
#pragma unroll
      for (int axis = RANK - 1; axis >= 0; --axis) {
        at += left % sizes[axis] * steps[axis];
        left /= sizes[axis];
      }
      const Lanes<S, VEC> given = Lanes<S, VEC>::read(src + at);
#pragma unroll
      for (int i = 0; i < VEC; ++i) put(found.x + i, given.x[i]);
    }
    found.write(y + to * WIDTH + first);
  }
}
