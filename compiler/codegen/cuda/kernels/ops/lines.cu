// Running combinations along the middle axis of [., COUNT, INNER], from the other end if REVERSE, of many lines or of short ones: a
// team of TEAM threads, a power of 2, goes along each line. It combines TEAM neighbours at once, and then those before them.

template <class H> __device__ __forceinline__ H of_lane(H mine, int lane) {
  unsigned words[sizeof(H) / 4];
  memcpy(words, &mine, sizeof(H));
#pragma unroll
  for (int i = 0; i < sizeof(H) / 4; ++i) words[i] = __shfl_sync(0xFFFFFFFFu, words[i], lane);
  memcpy(&mine, words, sizeof(H));
  return mine;
}

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(GIVEN_TENSORS, T *__restrict__ result, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const Line line = ((Line)blockIdx.x * THREADS + threadIdx.x) / TEAM, inner = s.INNER;
  const int member = threadIdx.x % TEAM, last = threadIdx.x % 32 | (TEAM - 1);
  const bool known = line < s.LINES;
  const long long begins = (long long)(line / inner) * s.COUNT * inner + line % inner;
  Held carry = NEUTRAL;
  for (int start = 0; start < s.COUNT; start += TEAM) {
    const int turn = start + member;
    const long long at = begins + (long long)(REVERSE ? s.COUNT - 1 - turn : turn) * inner;
    const bool there = known && turn < s.COUNT;
    Held all = there ? READ(at, turn == 0) : NEUTRAL;
#pragma unroll
    for (int step = 1; step < TEAM; step *= 2) {
      const Held before = up(all, step);
      if (member >= step) all = combined(before, all);
    }
    all = combined(carry, all);
    if (there) store(result + at, RESULT(all, at));
    carry = TEAM == 1 ? all : of_lane(all, last);
  }
}
