// x[., index, .] = y along the middle axis of [., COUNT, AFTER], for indices that differ along it: a thread moves one element.
extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ y, const I *__restrict__ index, T *__restrict__ x, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const long long at = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (at >= (long long)s.ALL * s.COUNT) return;
  const long long to = index[at];
  if (to < 0 || to >= s.COUNT) return;
  x[at + (to - at / s.AFTER % s.COUNT) * s.AFTER] = y[at];
}
