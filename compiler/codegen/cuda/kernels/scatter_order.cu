// The places of each id with more than PART rows in their order: a block sets a bit for each place of its id, in a window of all
// rows at a time, and reads the bits from the first to the last.

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(int *work, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const Places p = places_of(work, s.COUNT, s.LENGTH, s.PART);
  if ((int)blockIdx.x >= *p.many) return;
  const int id = p.longs[blockIdx.x], count = p.counts[id], lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int *mine = p.places + p.starts[id];
  int *order = p.order + p.starts[id];
  __shared__ unsigned bits[WORDS];
  __shared__ int warps[THREADS / 32];
  for (int first = 0; first < s.LENGTH; first += 32 * WORDS) {
    const int left = (s.LENGTH - first + 31) / 32, words = left < WORDS ? left : WORDS, each = (words + THREADS - 1) / THREADS;
    for (int w = threadIdx.x; w < words; w += THREADS) bits[w] = 0;
    __syncthreads();
    for (int n = threadIdx.x; n < count; n += THREADS) {
      const unsigned at = mine[n] - first;
      if (at < 32u * WORDS) atomicAdd(bits + at / 32, 1u << at % 32);
    }
    __syncthreads();
    const int from = threadIdx.x * each, to = from + each < words ? from + each : words;
    int own = 0;
    for (int w = from; w < to; ++w) own += __popc(bits[w]);
    int sum = own;
    for (int step = 1; step < 32; step *= 2) {
      const int before = __shfl_up_sync(0xFFFFFFFFu, sum, step);
      if (lane >= step) sum += before;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    int at = sum - own, all = 0;
    for (int w = 0; w < THREADS / 32; ++w) {
      at += w < warp ? warps[w] : 0;
      all += warps[w];
    }
    for (int w = from; w < to; ++w) {
      for (unsigned rest = bits[w]; rest; rest &= rest - 1) order[at++] = first + 32 * w + __popc((rest & -rest) - 1);
    }
    order += all;
    __syncthreads();
  }
}
