// y[i, .] = rows[ids[i], .] in ROW pieces of VEC neighbours of INNER, ALL pieces together and EACH of them a thread; `missing` for an id
// outside of 0..COUNT-1. `put` may convert from T to what y holds, S.

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(ARGUMENTS, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const int first = blockIdx.x * EACH * THREADS + threadIdx.x;
  long long id[EACH];
  Lanes<T, VEC> found[EACH];
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int e = first + k * THREADS;
    id[k] = e < s.ALL ? ids[quotient(e, s.ROW_magic, s.ROW_shift)] : -1;
  }
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int e = first + k * THREADS, column = e - quotient(e, s.ROW_magic, s.ROW_shift) * s.ROW;
    if (id[k] >= 0 && id[k] < s.COUNT) found[k] = Lanes<T, VEC>::read(rows + id[k] * s.INNER + column * VEC);
  }
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int e = first + k * THREADS;
    if (e >= s.ALL) continue;
    Lanes<S, VEC> all;
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
      if (id[k] >= 0 && id[k] < s.COUNT) put(all.x + i, found[k].x[i]);
      else missing(all.x + i);
    }
    all.write(y + (long long)e * VEC);
  }
}
