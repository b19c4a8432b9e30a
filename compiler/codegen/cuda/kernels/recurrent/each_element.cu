// A loop whose elements do not need one another, as one kernel: a thread computes all steps of an element. The text in front of
// this file has struct Element, whose arrays hold AHEAD steps, so that their loads are under way at once.
extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(POINTERS, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= ELEMENTS) return;
  Element element(i, POINTER_NAMES);
  for (int first = 0; first < s.COUNT; first += AHEAD) {
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
      if (first + a < s.COUNT) element.fetch(a, REVERSE ? s.COUNT - 1 - first - a : first + a);
    }
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
      if (first + a < s.COUNT) element.step(a, REVERSE ? s.COUNT - 1 - first - a : first + a, i);
    }
  }
  element.end(i);
}
