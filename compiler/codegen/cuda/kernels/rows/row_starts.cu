// starts[k]: how many of ALL sorted keys are less than k, for k in 0..KEYS; found by halving.

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(ARGUMENTS, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const int k = blockIdx.x * THREADS + threadIdx.x;
  if (k > s.KEYS) return;
  int low = 0, high = s.ALL;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (keys[middle] < (unsigned)k) low = middle + 1;
    else high = middle;
  }
  starts[k] = low;
}
