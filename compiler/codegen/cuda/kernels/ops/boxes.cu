// Parts of a tensor `whole`, each with a contiguous tensor of its own: a block copies a piece of one part, VEC elements at once,
// FROM one of the two TO the other; `put` may convert from T to what the other holds, S. PICK knows the part's tensor `own`, its
// `count` elements in rows of `run`, the place `start` of the first one, how far DOWN a row begins, and the number of the block among
// those of the part.

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(POINTERS, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const int number = blockIdx.x;
  PICK;
  const int first = (block * EACH * THREADS + threadIdx.x) * VEC;
  Lanes<T, VEC> found[EACH];
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int e = first + k * THREADS * VEC;
    if (e >= count) continue;
    const int row = quotient(e, run_magic, run_shift), at = start + DOWN + (e - row * run);
    found[k] = Lanes<T, VEC>::read(FROM);
  }
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int e = first + k * THREADS * VEC;
    if (e >= count) continue;
    const int row = quotient(e, run_magic, run_shift), at = start + DOWN + (e - row * run);
    Lanes<S, VEC> held;
#pragma unroll
    for (int i = 0; i < VEC; ++i) put(held.x + i, found[k].x[i]);
    held.write(TO);
  }
}
