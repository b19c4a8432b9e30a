// Parts of a tensor `whole`, each with a contiguous tensor of its own: a block copies a piece of one part, VEC elements at once,
// FROM one of the two TO the other; `put` may convert from T to what the other holds, S. PICK knows the part's tensor `own`, its
// `count` elements in rows of `run`, the place `start` of the first one, the number `rows` of rows that are `step` apart, the distance
// `leap` of as many rows, the part's first block, and how to divide by `run` and `rows`.

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(POINTERS, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const int number = blockIdx.x;
  PICK;
  const int first = (block * EACH * THREADS + threadIdx.x) * VEC;
  Lanes<T, VEC> found[EACH];
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int e = first + k * THREADS * VEC, row = quotient(e, run_magic, run_shift);
    const int pack = quotient(row, rows_magic, rows_shift);
    const long long at = start + (long long)pack * leap + (long long)(row - pack * rows) * step + (e - row * run);
    if (e < count) found[k] = Lanes<T, VEC>::read(FROM);
  }
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int e = first + k * THREADS * VEC, row = quotient(e, run_magic, run_shift);
    const int pack = quotient(row, rows_magic, rows_shift);
    const long long at = start + (long long)pack * leap + (long long)(row - pack * rows) * step + (e - row * run);
    if (e >= count) continue;
    Lanes<S, VEC> held;
#pragma unroll
    for (int i = 0; i < VEC; ++i) put(held.x + i, found[k].x[i]);
    held.write(TO);
  }
}
