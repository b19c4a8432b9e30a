// Sums along paths, each step times its weight: a block for each row, that goes from time to time, a thread for every
// THREADS-th state. All [., TIMES, STATES]. A step leads 0, 1 or 2 states up; its weight is at its end. BACK: the times in
// reverse, and each state gets from those that its steps lead to.

extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(const T *__restrict__ x, const T *__restrict__ stay, const T *__restrict__ one, const T *__restrict__ two, T *y) {
  wait_for_those_before();
  constexpr int STEP = BACK ? 1 : -1;
  const long long row = (long long)blockIdx.x * TIMES * STATES;
  for (int turn = 0; turn < TIMES; ++turn) {
    const long long here = row + (long long)(BACK ? TIMES - 1 - turn : turn) * STATES;
    const long long known = here + STEP * STATES;
    const long long ends = BACK ? known : here;
    for (int s = threadIdx.x; s < STATES; s += THREADS) {
      T sum = x[here + s];
      if (turn > 0) {
        const int near = s + STEP, far = s + 2 * STEP;
        sum += stay[ends + s] * y[known + s];
        if (near >= 0 && near < STATES) sum += one[ends + (BACK ? near : s)] * y[known + near];
        if (far >= 0 && far < STATES) sum += two[ends + (BACK ? far : s)] * y[known + far];
      }
      y[here + s] = sum;
    }
    __syncthreads();  // the next time reads what all threads have written
  }
}
