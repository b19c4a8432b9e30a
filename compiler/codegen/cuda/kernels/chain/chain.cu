// A chain of stages as one kernel. The text in front of this file has the stages, and STAGES, their calls.
extern "C" __global__ void __launch_bounds__(THREADS, 1) KERNEL(POINTERS) {
  wait_for_those_before();
  STAGES
}
