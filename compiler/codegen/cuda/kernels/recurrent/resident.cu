// A loop as one kernel. The text in front of this file has the step: struct Steps with begin, step and end.
extern "C" __global__ void __launch_bounds__(THREADS, 1) KERNEL(POINTERS, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  extern __shared__ __align__(128) unsigned char memory[];
  Steps steps;
  steps.begin(s, reinterpret_cast<float *>(memory), POINTER_NAMES);
#pragma unroll 1
  for (int step = 0; step < s.COUNT; ++step) steps.step(s, step);
  steps.end();
}
