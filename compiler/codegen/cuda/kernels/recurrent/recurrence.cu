// y[i] = a[i] * y[i-1] + b[i] along lines of COUNT elements that are INNER apart, in order; LATE: a[i-1] instead of a[i]. All
// [., COUNT, INNER]. A team of TEAM threads for each line: a warp reads 32 elements at once and each of its threads goes
// through them, so that the order of sums is that of one thread.
extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ y) {
  wait_for_those_before();
  const long long line = ((long long)blockIdx.x * THREADS + threadIdx.x) / TEAM;
  if (line >= LINES) return;
  const int member = threadIdx.x % TEAM;
  const long long first = line / INNER * COUNT * INNER + line % INNER;
  SUM carry = 0;  // LATE: the last element times its factor
  for (long long start = 0; start < COUNT; start += TEAM) {
    const long long turn = start + member;
    const long long at = first + (REVERSE ? COUNT - 1 - turn : turn) * INNER;
    const bool there = turn < COUNT;
    const SUM factor = there ? wide(a[at]) : SUM(0), term = there ? wide(b[at]) : SUM(0);
    SUM own = 0;
#pragma unroll
    for (int k = 0; k < TEAM; ++k) {
      const SUM f = TEAM == 1 ? factor : __shfl_sync(0xFFFFFFFFu, factor, k);
      const SUM t = TEAM == 1 ? term : __shfl_sync(0xFFFFFFFFu, term, k);
      const SUM found = LATE ? carry + t : fused(f, carry, t);
      carry = LATE ? f * found : found;
      if (k == member) own = found;
    }
    if (there) store(y + at, own);
  }
}
