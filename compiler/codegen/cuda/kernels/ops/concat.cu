// Several tensors of ROWS rows into rows of PITCH elements: a block copies a part of one tensor, whose pointer, elements of a row,
// how to divide by them, place in a row of y and first block PICK knows, VEC elements at once.

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(POINTERS T *__restrict__ y, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const int number = blockIdx.x;
  PICK;
  Lanes<T, VEC> found[EACH];
  const int first = (block * EACH * THREADS + threadIdx.x) * VEC, all = s.ROWS * run;
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int e = first + k * THREADS * VEC;
    if (e < all) found[k] = Lanes<T, VEC>::read(from + e);
  }
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int e = first + k * THREADS * VEC, row = quotient(e, run_magic, run_shift);
    if (e < all) found[k].write(y + (long long)row * s.PITCH + start + (e - row * run));
  }
}
