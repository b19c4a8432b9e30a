// Sums over the paths of ctc, and their gradient: a block for each row, that goes from time to time, a thread for every
// THREADS-th state. x [., TIMES, STATES] of T, all else in SUM. BACK: the times in reverse; `rest` [., 2, STATES] holds the
// sums over the ends of paths with the scores of the last time and of this one.

__device__ __forceinline__ SUM none() { return -1 / (SUM)0; }

// The logarithm of the sum of exponentials, -inf for none.
__device__ __forceinline__ SUM log_sum(SUM x, SUM y, SUM z) {
  const SUM top = greater(greater(x, y), z);
  if (top == none()) return top;
  return top + log(exp(x - top) + exp(y - top) + exp(z - top));
}

__device__ __forceinline__ long long within(long long x, long long low, long long high) {
  return x < low ? low : x > high ? high : x;
}

#if BACK
extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(const T *__restrict__ x, const bool *__restrict__ skips, const TIMES_INT *__restrict__ times,
           const STATES_INT *__restrict__ states, const SUM *__restrict__ loss, const SUM *__restrict__ sums,
           const SUM *__restrict__ dy, T *__restrict__ dx, SUM *rest) {
  wait_for_those_before();
  const long long row = blockIdx.x;
  const int limit = (int)within(times[row], 0, TIMES), end = (int)within(states[row], 1, STATES) - 1;
  const SUM whole = loss[row], slope = dy[row];
  skips += row * STATES;
  rest += row * 2 * STATES;
  for (int t = TIMES - 1; t >= 0; --t) {
    const long long here = (row * TIMES + t) * STATES;
    const SUM *after = rest + (t + 1) % 2 * STATES;
    SUM *now = rest + t % 2 * STATES;
    for (int s = threadIdx.x; s < STATES; s += THREADS) {
      SUM share = 0;
      if (t < limit) {
        SUM sum;
        if (t == limit - 1)
          sum = s == end || s == end - 1 ? 0 : none();
        else
          sum = log_sum(after[s], s + 1 < STATES ? after[s + 1] : none(),
                        s + 2 < STATES && skips[s + 2] ? after[s + 2] : none());
        if (whole != -none()) share = -slope * exp(sums[here + s] + sum + whole);
        now[s] = sum + wide(x[here + s]);
      }
      store(dx + here + s, share);
    }
    __syncthreads();  // the next time reads what all threads have written
  }
}
#else
extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(const T *__restrict__ x, const bool *__restrict__ skips, const TIMES_INT *__restrict__ times,
           const STATES_INT *__restrict__ states, SUM *__restrict__ loss, SUM *sums) {
  wait_for_those_before();
  const long long row = blockIdx.x;
  skips += row * STATES;
  x += row * TIMES * STATES;
  sums += row * TIMES * STATES;
  for (int t = 0; t < TIMES; ++t) {
    const SUM *before = sums - STATES;
    for (int s = threadIdx.x; s < STATES; s += THREADS) {
      SUM sum = s < 2 ? wide(x[s]) : none();
      if (t > 0)
        sum = wide(x[s]) + log_sum(before[s], s > 0 ? before[s - 1] : none(), s > 1 && skips[s] ? before[s - 2] : none());
      sums[s] = sum;
    }
    __syncthreads();  // the next time reads what all threads have written
    x += STATES;
    sums += STATES;
  }
  if (threadIdx.x == 0) {
    const long long n = times[row], m = states[row];
    const int last = (int)within(n, 1, TIMES) - 1, end = (int)within(m, 1, STATES) - 1;
    sums += (long long)(last - TIMES) * STATES;
    SUM found = -log_sum(sums[end], end > 0 ? sums[end - 1] : none(), none());
    if (n == 0) found = m == 1 ? 0 : -none();
    if (n < 0 || n > TIMES || m < 1 || m > STATES) found = none() - none();
    loss[row] = found;
  }
}
#endif
