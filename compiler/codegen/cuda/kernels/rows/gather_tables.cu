// y[i, .] = rows[ids[i], .], VEC neighbours of INNER a thread; `missing` for an id outside of 0..COUNT-1. `put` may convert from T
// to what y holds, S.

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(ARGUMENTS, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const int each = s.INNER / VEC, e = blockIdx.x * THREADS + threadIdx.x, i = e / each;
  if (i >= s.LENGTH) return;
  const long long id = ids[i];
  const bool known = id >= 0 && id < s.COUNT;
  Lanes<T, VEC> found;
  Lanes<S, VEC> all;
  if (known) found = Lanes<T, VEC>::read(rows + id * s.INNER + (e - i * each) * VEC);
#pragma unroll
  for (int k = 0; k < VEC; ++k) {
    if (known) put(all.x + k, found.x[k]);
    else missing(all.x + k);
  }
  all.write(y + (long long)e * VEC);
}
