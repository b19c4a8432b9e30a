// Rows of INNER elements of type T, of which a lane has VEC neighbours; HOW they are combined in SUM is `combined`, from NEUTRAL on.

// The rows at `count` places, one after the other. AHEAD loads of a lane do not wait for each other. CHECKED: a place outside of
// 0..FIRST_ABSENT-1 has a row of ABSENT. With WEIGHTED, TAPS places have one row, which is multiplied by the weight of the place.
template <class P>
__device__ __forceinline__ void combine_rows(SUM (&held)[VEC], const T *rows, int inner, const P *places, int count, int first_absent, const T *weight = nullptr) {
  int n = 0;
  for (; n + AHEAD <= count; n += AHEAD) {
    Lanes<T, VEC> found[AHEAD];
    bool there[AHEAD];
    SUM factor[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
      const long long place = places[n + a];
      there[a] = !CHECKED || (place >= 0 && place < first_absent);
      found[a] = Lanes<T, VEC>::read(rows + (there[a] ? place / TAPS : 0) * inner);
      if (WEIGHTED) factor[a] = wide(weight[there[a] ? place : 0]);
    }
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
#pragma unroll
      for (int i = 0; i < VEC; ++i) held[i] = combined(held[i], there[a] ? weighted(wide(found[a].x[i]), factor[a]) : ABSENT);
    }
  }
  for (; n < count; ++n) {
    const long long place = places[n];
    const bool there = !CHECKED || (place >= 0 && place < first_absent);
    const Lanes<T, VEC> found = Lanes<T, VEC>::read(rows + (there ? place / TAPS : 0) * inner);
    const SUM factor = WEIGHTED ? wide(weight[there ? place : 0]) : SUM(1);
#pragma unroll
    for (int i = 0; i < VEC; ++i) held[i] = combined(held[i], there ? weighted(wide(found.x[i]), factor) : ABSENT);
  }
}

// The result at y: what is held, with the elements of x if HAS_X.
__device__ __forceinline__ void finish(T *y, const T *x, const SUM (&held)[VEC]) {
  Lanes<T, VEC> all, own;
  if (HAS_X) own = Lanes<T, VEC>::read(x);
#pragma unroll
  for (int i = 0; i < VEC; ++i) store(all.x + i, HAS_X ? combined(wide(own.x[i]), held[i]) : held[i]);
  all.write(y);
}

__device__ __forceinline__ void fill(T *y, SUM filler) {
  Lanes<T, VEC> all;
#pragma unroll
  for (int i = 0; i < VEC; ++i) store(all.x + i, filler);
  all.write(y);
}

